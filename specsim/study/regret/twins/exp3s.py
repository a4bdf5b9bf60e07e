"""Twin of EXP3S."""

from __future__ import annotations

import math

import numpy as np

from specsim.policies.arms.exp3s import EXP3S
from specsim.policies.rewards import UNIT_REWARDS
from specsim.study.regret.feedback import Feedback
from specsim.study.regret.twins.step_reward import StepReward


def drawn(chances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[S] arms drawn by their chances [S, A], by one uniform draw a run."""
    below = np.cumsum(chances, axis=1)
    draws = rng.random(len(chances))[:, None]
    arms: np.ndarray = np.minimum((draws >= below).sum(axis=1), chances.shape[1] - 1)
    return arms


class EXP3STwin:
    """EXP3.S in S runs."""

    def __init__(self, policy: EXP3S, num_runs: int) -> None:
        self.policy = policy
        self.weights = np.full((num_runs, policy.num_arms), 1.0 / policy.num_arms)
        self._steps = StepReward(num_runs)
        self._largest = np.full(num_runs, 1.0 if policy.reward in UNIT_REWARDS else 0.0)
        self._first = np.arange(num_runs) * policy.num_arms

    def chances(self) -> np.ndarray:
        """[S, A] chance of each arm."""
        gamma = self.policy.gamma
        return (1.0 - gamma) * self.weights + gamma / self.policy.num_arms

    def pull(self, domain: str, rng: np.random.Generator) -> np.ndarray:
        """[S] arms drawn from `chances`."""
        return drawn(self.chances(), rng)

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Raise the pulled arm's weight by what it brought over its chance."""
        policy, (gain, exposure) = self.policy, feedback.tally(self.policy.reward)
        self._steps.add(gain, exposure)
        reward = self._reward(self._steps.worth(gain, exposure), exposure > 0.0)
        at = self._first + arms
        growth = np.exp(policy.gamma * reward / (self.chances().reshape(-1)[at] * policy.num_arms))
        raised = self.weights.copy()
        raised.reshape(-1)[at] *= growth
        raised += math.e * policy.alpha / policy.num_arms
        raised /= raised.sum(axis=1, keepdims=True)
        self.weights = np.where((exposure > 0.0)[:, None], raised, self.weights)

    def _reward(self, worth: np.ndarray, counts: np.ndarray) -> np.ndarray:
        if self.policy.scale is None and self.policy.reward not in UNIT_REWARDS:
            self._largest = np.where(counts, np.maximum(self._largest, worth), self._largest)
        scale = self.policy.scale or np.where(self._largest == 0.0, 1.0, self._largest)
        return np.minimum(np.maximum(worth / scale, 0.0), 1.0)
