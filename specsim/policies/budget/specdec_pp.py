"""Stop drafting once a rejection somewhere in the draft is likely enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Array, Draft, Score, StepCost
from specsim.policies.base import BudgetTiming
from specsim.policies.budget.depth_option import DepthOption
from specsim.policies.stopping import until_failure
from specsim.policies.survival import namespace, survival


@dataclass(frozen=True, kw_only=True)
class SpecDecPP(DepthOption):
    """Draft until 1 - c(1) ... c(k), the chance that some draft is rejected, exceeds a threshold; verify all.

    The draft that carried it over is kept, so that its own token may be looked at. The paper's c comes from a trained
    acceptance head; here it is the drafter's score, calibrated.

    threshold  chance of a rejection above which drafting stops
    score      what the drafter says of each position
    depth      most draft tokens a request (None: the drafter's `max_depth`)

    Source: SpecDec++ (arXiv 2405.19715), the threshold policy.
    """

    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.7
    score: Score = "drawn_prob"

    timing: ClassVar[BudgetTiming] = "stop_after"

    def draft_lengths(self, draft: Draft, confidence: Array, price: Callable[[int], StepCost]) -> Array:
        """[B] int64, draft tokens of each request before it stops."""
        xp = namespace(confidence)
        goes_on = 1.0 - survival(confidence, xp) <= self.threshold
        return until_failure(xp.permute_dims(goes_on, (1, 0)), draft.num_drafts, True, xp)

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """[B] int64, every draft of every request."""
        return draft.num_drafts
