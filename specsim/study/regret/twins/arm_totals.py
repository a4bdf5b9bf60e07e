"""Twin of ArmTotals: pulls, gain and exposure of each arm in each run."""

from __future__ import annotations

import numpy as np

from specsim.policies.rewards import UNIT_REWARDS, RewardName


class ArmTotals:
    """Sums [S, A] float64.

    num_runs, num_arms  S and A
    """

    def __init__(self, num_runs: int, num_arms: int) -> None:
        self.pulls = np.zeros((num_runs, num_arms))
        self.untested = np.zeros((num_runs, num_arms))
        self.gain = np.zeros((num_runs, num_arms))
        self.exposure = np.zeros((num_runs, num_arms))
        self.first = np.arange(num_runs) * num_arms  # where each run begins in the flat arrays

    def add(self, arms: np.ndarray, gain: np.ndarray, exposure: np.ndarray) -> None:
        """Count one step of each run."""
        at = self.first + arms
        pulls, untested, tested = self.pulls.reshape(-1), self.untested.reshape(-1), exposure > 0.0
        since = untested[at]
        pulls[at] = pulls[at] - np.where(tested, since, 0.0) + 1.0
        untested[at] = np.where(tested, 0.0, since + 1.0)
        self.gain.reshape(-1)[at] += gain
        self.exposure.reshape(-1)[at] += exposure

    def fade(self, discount: float) -> None:
        """Multiply everything."""
        self.pulls *= discount
        self.untested *= discount
        self.gain *= discount
        self.exposure *= discount

    def means(self) -> np.ndarray:
        """[S, A] ratio of totals, 0 without exposure."""
        return ratio(self.gain, self.exposure)

    def reset(self, runs: np.ndarray) -> None:
        """Forget everything of some runs."""
        self.pulls[runs] = self.untested[runs] = self.gain[runs] = self.exposure[runs] = 0.0


def ratio(gain: np.ndarray, exposure: np.ndarray) -> np.ndarray:
    """gain / exposure, 0 where there is no exposure."""
    means: np.ndarray = np.divide(gain, exposure, out=np.zeros_like(gain), where=exposure > 0.0)
    return means


def reward_scale(reward: RewardName, means: np.ndarray, given: float | None) -> float | np.ndarray:
    """Twin of specsim.policies.rewards.reward_scale.

    means    [S, A]
    returns  a number, or [S, 1] where it differs by run
    """
    if given is not None or reward in UNIT_REWARDS:
        return given or 1.0
    best = means.max(axis=1, keepdims=True)
    return np.where(best == 0.0, 1.0, best)


def unpulled_first(indices: np.ndarray, pulls: np.ndarray) -> np.ndarray:
    """[S] the first arm without pulls where a run has one, else the first of the largest index.

    indices, pulls  [S, A]
    """
    arms: np.ndarray = np.where(pulls == 0.0, np.inf, indices).argmax(axis=1)
    return arms
