"""Twin of FixedArm."""

from __future__ import annotations

import numpy as np

from specsim.policies.arms.fixed_arm import FixedArm
from specsim.study.regret.feedback import Feedback


class FixedArmTwin:
    """The same arm in every run."""

    def __init__(self, policy: FixedArm, num_runs: int) -> None:
        self._arms = np.full(num_runs, policy.arm)

    def pull(self, domain: str, rng: np.random.Generator) -> np.ndarray:
        """[S] the arm."""
        return self._arms

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Nothing to learn."""
