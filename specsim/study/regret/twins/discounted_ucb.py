"""Twin of DiscountedUCB."""

from __future__ import annotations

import numpy as np

from specsim.policies.arms.discounted_ucb import DiscountedUCB
from specsim.study.regret.feedback import Feedback
from specsim.study.regret.twins.arm_totals import ArmTotals, reward_scale, unpulled_first
from specsim.study.regret.twins.ucb1 import exploration_bonus


class DiscountedUCBTwin:
    """Discounted UCB in S runs."""

    def __init__(self, policy: DiscountedUCB, num_runs: int) -> None:
        self.policy = policy
        self.totals = ArmTotals(num_runs, policy.num_arms)

    def pull(self, domain: str, rng: np.random.Generator) -> np.ndarray:
        """[S] the arm with the largest index."""
        weight, means = self.totals.pulls, self.totals.means()
        scale = reward_scale(self.policy.reward, means, self.policy.scale)
        steps = np.maximum(weight.sum(axis=1, keepdims=True), 1.0)
        return unpulled_first(means / scale + exploration_bonus(steps, weight, self.policy.c), weight)

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Fade every arm's sums and add one step to its arm's."""
        self.totals.fade(self.policy.discount)
        self.totals.add(arms, *feedback.tally(self.policy.reward))
