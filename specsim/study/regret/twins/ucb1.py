"""Twin of UCB1."""

from __future__ import annotations

import numpy as np

from specsim.policies.arms.ucb1 import UCB1
from specsim.study.regret.feedback import Feedback
from specsim.study.regret.twins.arm_totals import ArmTotals, reward_scale, unpulled_first


def exploration_bonus(num_steps: float | np.ndarray, pulls: np.ndarray, c: float) -> np.ndarray:
    """c * sqrt(2 ln t / n); infinite or no number where n is 0, which the caller replaces.

    num_steps  t, or [S, 1]
    pulls      [S, A]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        bonus: np.ndarray = c * np.sqrt(2.0 * np.log(num_steps) / pulls)
    return bonus


class UCB1Twin:
    """UCB1 in S runs."""

    def __init__(self, policy: UCB1, num_runs: int) -> None:
        self.policy = policy
        self.totals = ArmTotals(num_runs, policy.num_arms)

    def pull(self, domain: str, rng: np.random.Generator, runs: np.ndarray | slice = slice(None)) -> np.ndarray:
        """[S] the arm with the largest index, of the given runs only."""
        pulls = self.totals.pulls[runs]
        means = self.totals.means()[runs]
        scale = reward_scale(self.policy.reward, means, self.policy.scale)
        steps = np.maximum(pulls.sum(axis=1, keepdims=True), 1.0)
        return unpulled_first(means / scale + exploration_bonus(steps, pulls, self.policy.c), pulls)

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Add one step to its arm's sums."""
        self.totals.add(arms, *feedback.tally(self.policy.reward))

    def reset(self, runs: np.ndarray) -> None:
        """Forget everything of some runs."""
        self.totals.reset(runs)
