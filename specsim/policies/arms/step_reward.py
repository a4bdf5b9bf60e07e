"""What one step was worth, for policies that learn from single steps instead of totals."""

from __future__ import annotations

from typing import Any


class StepReward:
    """A ratio of totals, linearised so that it can be learned step by step.

    worth = rho + (gain - rho * exposure) / largest,  rho = ratio of totals so far,  largest = largest exposure so far

    The plain ratio gain / exposure of a step would not do: a drafter whose drafts run deep meets its one rejection
    in every step and looks worse than one that drafts a single token less well. Averaged over steps, `worth` exceeds
    rho exactly when the arm's ratio of totals does, and for a reward in [0, 1] it lies there too.
    """

    def __init__(self) -> None:
        self.gain = 0.0
        self.exposure = 0.0
        self.largest = 0.0

    def add(self, gain: float, exposure: float) -> None:
        """Count one step of any arm; exposure is above 0."""
        self.gain += gain
        self.exposure += exposure
        self.largest = max(self.largest, exposure)

    def worth(self, gain: float, exposure: float) -> float:
        """What a counted step was worth, in the reward's unit."""
        rho = self.gain / self.exposure
        return rho + (gain - rho * exposure) / self.largest

    def state_dict(self) -> dict[str, Any]:
        """The sums, JSON-able."""
        return {"gain": self.gain, "exposure": self.exposure, "largest": self.largest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.gain, self.exposure, self.largest = state["gain"], state["exposure"], state["largest"]
