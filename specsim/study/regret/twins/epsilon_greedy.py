"""Twin of EpsilonGreedy."""

from __future__ import annotations

import numpy as np

from specsim.policies.arms.epsilon_greedy import EpsilonGreedy
from specsim.study.regret.feedback import Feedback
from specsim.study.regret.twins.arm_totals import ArmTotals


class EpsilonGreedyTwin:
    """Epsilon-greedy in S runs; all try their arms at the same time, so none draws before the others do."""

    def __init__(self, policy: EpsilonGreedy, num_runs: int) -> None:
        self.policy = policy
        self.totals = ArmTotals(num_runs, policy.num_arms)
        self._steps = 0

    def pull(self, domain: str, rng: np.random.Generator) -> np.ndarray:
        """[S] by one uniform draw a run."""
        num_runs, num_arms = self.totals.pulls.shape
        if self._steps < num_arms:
            return np.full(num_runs, self._steps)
        draws, epsilon = rng.random(num_runs), self.policy.epsilon
        best: np.ndarray = self.totals.means().argmax(axis=1)
        if not epsilon:
            return best
        explored = np.minimum((draws / epsilon * num_arms).astype(np.int64), num_arms - 1)
        return np.where(draws < epsilon, explored, best)

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Add one step to its arm's sums."""
        self._steps += 1
        self.totals.add(arms, *feedback.tally(self.policy.reward))
