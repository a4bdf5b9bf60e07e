"""Twin of ThompsonGaussian."""

from __future__ import annotations

import numpy as np

from specsim.policies.arms.discounted_thompson_gaussian import DiscountedThompsonGaussian
from specsim.policies.arms.thompson_gaussian import ThompsonGaussian
from specsim.study.regret.feedback import Feedback
from specsim.study.regret.twins.arm_totals import ArmTotals, reward_scale


def largest_draw(
    totals: ArmTotals,
    policy: ThompsonGaussian | DiscountedThompsonGaussian,
    rng: np.random.Generator,
    runs: np.ndarray | slice = slice(None),
) -> np.ndarray:
    """[S] the first arm without pulls where a run has one, else that of the largest draw of mean + sigma / sqrt(n) z.

    A run that still tries its arms draws nothing, as its definition would not.
    """
    pulls, means = totals.pulls[runs], totals.means()[runs]
    arms: np.ndarray = (pulls == 0.0).argmax(axis=1)
    ready = (pulls != 0.0).all(axis=1)
    if ready.any():
        means, pulls = means[ready], pulls[ready]
        draws = rng.standard_normal(means.shape)
        scale = reward_scale(policy.reward, means, policy.scale)
        arms[ready] = (means / scale + policy.sigma / np.sqrt(pulls) * draws).argmax(axis=1)
    return arms


class ThompsonGaussianTwin:
    """Normal beliefs in S runs."""

    def __init__(self, policy: ThompsonGaussian, num_runs: int) -> None:
        self.policy = policy
        self.totals = ArmTotals(num_runs, policy.num_arms)

    def pull(self, domain: str, rng: np.random.Generator, runs: np.ndarray | slice = slice(None)) -> np.ndarray:
        """[S] the arm with the largest draw, of the given runs only."""
        return largest_draw(self.totals, self.policy, rng, runs)

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Add one step to its arm's sums."""
        self.totals.add(arms, *feedback.tally(self.policy.reward))

    def reset(self, runs: np.ndarray) -> None:
        """Forget everything of some runs."""
        self.totals.reset(runs)
