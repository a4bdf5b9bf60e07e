"""Twin of DiscountedThompsonGaussian."""

from __future__ import annotations

import numpy as np

from specsim.policies.arms.discounted_thompson_gaussian import DiscountedThompsonGaussian
from specsim.study.regret.feedback import Feedback
from specsim.study.regret.twins.arm_totals import ArmTotals
from specsim.study.regret.twins.thompson_gaussian import largest_draw


class DiscountedThompsonGaussianTwin:
    """Fading normal beliefs in S runs."""

    def __init__(self, policy: DiscountedThompsonGaussian, num_runs: int) -> None:
        self.policy = policy
        self.totals = ArmTotals(num_runs, policy.num_arms)

    def pull(self, domain: str, rng: np.random.Generator) -> np.ndarray:
        """[S] the arm with the largest draw."""
        return largest_draw(self.totals, self.policy, rng)

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Fade every arm's sums and add one step to its arm's."""
        self.totals.fade(self.policy.discount)
        self.totals.add(arms, *feedback.tally(self.policy.reward))
