"""Twin of RoundRobin."""

from __future__ import annotations

import numpy as np

from specsim.policies.arms.round_robin import RoundRobin
from specsim.study.regret.feedback import Feedback


class RoundRobinTwin:
    """The arms in turn, every run in step."""

    def __init__(self, policy: RoundRobin, num_runs: int) -> None:
        self._turns = [np.full(num_runs, arm) for arm in range(policy.num_arms)]
        self._next = 0

    def pull(self, domain: str, rng: np.random.Generator) -> np.ndarray:
        """[S] the next arm in turn."""
        arms = self._turns[self._next]
        self._next = (self._next + 1) % len(self._turns)
        return arms

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Nothing to learn."""
