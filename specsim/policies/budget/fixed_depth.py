"""The same number of drafts at every step, all of them verified: what engines do by default."""

from __future__ import annotations

from typing import ClassVar

from pydantic.dataclasses import dataclass

from specsim.core import Array, Draft, StepCost
from specsim.policies.base import BudgetTiming
from specsim.policies.budget.depth_option import DepthOption


@dataclass(frozen=True, kw_only=True)
class FixedDepth(DepthOption):
    """Verify everything that was drafted.

    depth   draft tokens a request (None: the drafter's `max_depth`)
    """

    score: ClassVar[None] = None
    timing: ClassVar[BudgetTiming] = "fixed"

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """[B] int64, every draft of every request."""
        return draft.num_drafts
