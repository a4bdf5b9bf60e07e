"""A fixed share of the drafts, the ones most likely to survive."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from specsim.core import Array, Draft, Score, StepCost
from specsim.policies.base import BudgetTiming
from specsim.policies.budget.depth_option import DepthOption
from specsim.policies.budget.verify_ratio import Ratio, RatioCount, as_fractions, drafts_at_ratio
from specsim.policies.ranking import best_first, keep_best
from specsim.policies.survival import namespace, survival_scores


@dataclass(frozen=True, kw_only=True)
class FixedRatio(DepthOption):
    """Rank all drafts of the batch by survival and keep the same share of them at every step.

    ratio  share to verify
    count  what a ratio is of, see `RatioCount`
    score  what the drafter says of each position
    depth  draft tokens a request (None: the drafter's `max_depth`)

    Source: D-cut (arXiv 2607.14647), the fixed-ratio ablation.
    """

    ratio: Ratio = 0.5
    count: RatioCount = "paper"
    score: Score = "drawn_prob"

    timing: ClassVar[BudgetTiming] = "fixed"

    @cached_property
    def fractions(self) -> np.ndarray:
        """[2, 1] int64, the ratio."""
        return as_fractions((self.ratio,))

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """[B] int64, verified prefix length of each request; see `BudgetPolicy.plan`."""
        xp = namespace(confidence)
        scores = survival_scores(confidence, draft.num_drafts, xp)
        fractions = xp.asarray(self.fractions, device=confidence.device)
        budget = drafts_at_ratio(fractions, draft.num_drafts, self.count, xp)
        return keep_best(scores, best_first(scores, xp), budget, xp)
