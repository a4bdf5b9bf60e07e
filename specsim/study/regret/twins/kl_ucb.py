"""Twin of KLUCB."""

from __future__ import annotations

import numpy as np

from specsim.policies.arms.kl_ucb import KLUCB, NEWTON_STEPS
from specsim.study.regret.feedback import Feedback
from specsim.study.regret.twins.arm_totals import ArmTotals


def upper_bound(mean: np.ndarray, pulls: np.ndarray, information: np.ndarray) -> np.ndarray:
    """The largest q with pulls * kl(mean, q) <= information; see specsim.policies.arms.kl_ucb.

    mean, pulls  [S, A], pulls above 0
    information  [S, 1]
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        per_pull, failure = information / pulls, 1.0 - mean
        success = np.where(mean > 0.0, mean * np.log(mean), 0.0)
        entropy = success + failure * np.log(failure)
        far = 1.0 - failure * np.exp((success - per_pull) / failure)
        q = np.minimum(mean + np.sqrt(per_pull / 2.0), far)
        for _ in range(NEWTON_STEPS):
            excess = entropy - mean * np.log(q) - failure * np.log(1.0 - q) - per_pull
            q = np.where((q > mean) & (q < 1.0), q - excess * q * (1.0 - q) / (q - mean), q)
    return np.where(mean >= 1.0, 1.0, np.minimum(np.maximum(q, mean), 1.0))


class KLUCBTwin:
    """KL-UCB in S runs."""

    def __init__(self, policy: KLUCB, num_runs: int) -> None:
        self.policy = policy
        self.totals = ArmTotals(num_runs, policy.num_arms)
        self._steps = 0

    def pull(self, domain: str, rng: np.random.Generator) -> np.ndarray:
        """[S] the arm with the largest index."""
        num_runs, num_arms = self.totals.pulls.shape
        if self._steps < num_arms:
            return np.full(num_runs, self._steps)
        means = np.minimum(self.totals.means() / (self.policy.scale or 1.0), 1.0)
        steps, of_run = np.unique(self.totals.pulls.sum(axis=1), return_inverse=True)
        information = np.array([self.policy.information(int(number)) for number in steps])[of_run]
        bounds = upper_bound(means, self.totals.pulls, information[:, None])
        arms: np.ndarray = bounds.argmax(axis=1)
        return arms

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Add one step to its arm's sums."""
        self._steps += 1
        self.totals.add(arms, *feedback.tally(self.policy.reward))
