"""Twin of DiscountedThompsonBeta."""

from __future__ import annotations

import numpy as np

from specsim.policies.arms.discounted_thompson_beta import DiscountedThompsonBeta
from specsim.study.regret.feedback import Feedback


class DiscountedThompsonBetaTwin:
    """Fading Beta beliefs in S runs."""

    def __init__(self, policy: DiscountedThompsonBeta, num_runs: int) -> None:
        self.policy = policy
        self.accepted = np.zeros((num_runs, policy.num_arms))
        self.rejected = np.zeros((num_runs, policy.num_arms))
        self._first = np.arange(num_runs) * policy.num_arms

    def pull(self, domain: str, rng: np.random.Generator) -> np.ndarray:
        """[S] the arm with the largest draw."""
        prior = self.policy.prior
        arms: np.ndarray = rng.beta(prior + self.accepted, prior + self.rejected).argmax(axis=1)
        return arms

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Fade every arm's counts and add the accept tests of one step."""
        self.accepted *= self.policy.discount
        self.rejected *= self.policy.discount
        at = self._first + arms
        self.accepted.reshape(-1)[at] += feedback.accepted
        self.rejected.reshape(-1)[at] += feedback.tested - feedback.accepted
