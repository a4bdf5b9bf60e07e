"""Twin of Hedge."""

from __future__ import annotations

import numpy as np

from specsim.policies.arms.hedge import Hedge
from specsim.study.regret.feedback import Feedback
from specsim.study.regret.twins.exp3s import drawn
from specsim.study.regret.twins.step_reward import StepReward


class HedgeTwin:
    """Hedge in S runs."""

    def __init__(self, policy: Hedge, num_runs: int) -> None:
        self.policy = policy
        self.weights = np.full((num_runs, policy.num_arms), 1.0 / policy.num_arms)
        self._steps = StepReward(num_runs)

    def pull(self, domain: str, rng: np.random.Generator) -> np.ndarray:
        """[S] arms drawn from the weights."""
        return drawn(self.weights, rng)

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Weigh every arm by what the verified tokens say of it."""
        gains, exposures = feedback.all_accepted.T, feedback.all_tested.T
        for gain, exposure in zip(gains, exposures, strict=True):
            self._steps.add(gain, exposure)
        worths = [self._steps.worth(gain, exposure) for gain, exposure in zip(gains, exposures, strict=True)]
        raised = self.weights * np.exp(self.policy.rate * np.stack(worths, axis=1))
        share = self.policy.share
        mixed = (1.0 - share) * raised / raised.sum(axis=1, keepdims=True) + share / self.policy.num_arms
        told = (feedback.all_tested > 0.0).any(axis=1, keepdims=True)
        self.weights = np.where(told, mixed, self.weights)
