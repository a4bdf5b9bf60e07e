"""Twin of StepReward."""

from __future__ import annotations

import numpy as np

from specsim.study.regret.twins.arm_totals import ratio


class StepReward:
    """What one step was worth, in S runs; see specsim.policies.arms.step_reward."""

    def __init__(self, num_runs: int) -> None:
        self.gain = np.zeros(num_runs)
        self.exposure = np.zeros(num_runs)
        self.largest = np.zeros(num_runs)

    def add(self, gain: np.ndarray, exposure: np.ndarray) -> None:
        """Count one step of any arm, [S]; those without exposure count nothing."""
        counts = exposure > 0.0
        self.gain += np.where(counts, gain, 0.0)
        self.exposure += exposure
        self.largest = np.maximum(self.largest, exposure)

    def worth(self, gain: np.ndarray, exposure: np.ndarray) -> np.ndarray:
        """[S] what a counted step was worth."""
        rho = ratio(self.gain, self.exposure)
        worth: np.ndarray = rho + ratio(gain - rho * exposure, self.largest)
        return worth
