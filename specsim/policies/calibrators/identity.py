"""Take the drafter's probability at its word."""

from __future__ import annotations

from typing import ClassVar

from pydantic.dataclasses import dataclass

from specsim.core import Array, Draft, Score
from specsim.policies.stateless import Stateless


@dataclass(frozen=True)
class IdentityCalibrator(Stateless):
    """The raw score is the confidence. A margin is no probability, so it needs another calibrator."""

    scores: ClassVar[tuple[Score, ...]] = ("drawn_prob", "max_prob", "shifted_prob")

    def calibrate(self, draft: Draft, score: Score) -> Array:
        """[B, D] float64, the score itself."""
        return draft.scores[score]

    def warming_up(self, draft: Draft) -> bool:
        """Never: there is nothing to learn."""
        return False
