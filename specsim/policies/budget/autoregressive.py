"""No speculation: one token a request and step."""

from __future__ import annotations

from typing import ClassVar

from pydantic.dataclasses import dataclass

from specsim.core import Array, Draft, DrafterSpec, StepContext, StepCost
from specsim.policies.base import BudgetTiming
from specsim.policies.stateless import Stateless
from specsim.policies.survival import namespace


@dataclass(frozen=True)
class Autoregressive(Stateless):
    """Never draft: what every speedup is measured against."""

    score: ClassVar[None] = None
    timing: ClassVar[BudgetTiming] = "fixed"
    clairvoyant: ClassVar[bool] = False
    drafts: ClassVar[bool] = False
    max_depth: ClassVar[int] = 0

    def draft_depth(self, context: StepContext, drafter: DrafterSpec) -> int:
        """Always 0."""
        return 0

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """[B] int64, all 0: nothing is verified whatever was drafted."""
        return namespace(draft.num_drafts).zeros_like(draft.num_drafts)
