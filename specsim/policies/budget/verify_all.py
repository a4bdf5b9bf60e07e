"""Verify every draft: for policies that decide how deep to draft, and nothing after that."""

from __future__ import annotations

from typing import ClassVar

from specsim.core import Array, Draft, StepCost


class VerifyAll:
    """Mixed into policies that read no score and prune nothing."""

    score: ClassVar[None] = None
    clairvoyant: ClassVar[bool] = False
    drafts: ClassVar[bool] = True

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """[B] int64, every draft of every request."""
        return draft.num_drafts
