"""A fixed capacity for the whole batch, given to the drafts most likely to survive."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Array, Draft, Score, StepCost
from specsim.policies.base import BudgetTiming
from specsim.policies.budget.depth_option import DepthOption
from specsim.policies.ranking import best_first, keep_best
from specsim.policies.survival import namespace, survival_scores


@dataclass(frozen=True, kw_only=True)
class Tetris(DepthOption):
    """Verify the `capacity` drafts of the batch most likely to survive, whatever they cost.

    capacity     drafts verified a step, over all requests (None: `per_request` times the requests)
    per_request  drafts verified a step and request, on average
    score        what the drafter says of each position
    depth        draft tokens a request, more than it may verify on average (None: the drafter's `max_depth`)

    Source: TETRIS (arXiv 2502.15197), greedy selection within a batch capacity.
    """

    capacity: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    per_request: Annotated[int, Field(ge=0, le=2**31 - 1)] = 3
    score: Score = "drawn_prob"

    timing: ClassVar[BudgetTiming] = "fixed"

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """[B] int64, verified prefix length of each request; see `BudgetPolicy.plan`."""
        xp = namespace(confidence)
        scores = survival_scores(confidence, draft.num_drafts, xp)
        most = self.per_request * confidence.shape[0] if self.capacity is None else self.capacity
        total = xp.reshape(xp.sum(draft.num_drafts), (1,))
        budget = xp.where(total < most, total, most)
        return keep_best(scores, best_first(scores, xp), budget, xp)
