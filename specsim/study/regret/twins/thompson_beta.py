"""Twin of ThompsonBeta."""

from __future__ import annotations

import numpy as np

from specsim.policies.arms.thompson_beta import ThompsonBeta
from specsim.study.regret.feedback import Feedback
from specsim.study.regret.twins.arm_totals import ArmTotals


class ThompsonBetaTwin:
    """Beta beliefs in S runs: successes are gains, failures what is left of the exposure."""

    def __init__(self, policy: ThompsonBeta, num_runs: int) -> None:
        self.policy = policy
        self.totals = ArmTotals(num_runs, policy.num_arms)

    def pull(self, domain: str, rng: np.random.Generator, runs: np.ndarray | slice = slice(None)) -> np.ndarray:
        """[S] the arm with the largest draw, of the given runs only."""
        prior, accepted = self.policy.prior, self.totals.gain[runs]
        rejected = self.totals.exposure[runs] - accepted
        arms: np.ndarray = rng.beta(prior + accepted, prior + rejected).argmax(axis=1)
        return arms

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Count the accept tests of one step."""
        self.totals.add(arms, feedback.accepted, feedback.tested)

    def reset(self, runs: np.ndarray) -> None:
        """Forget everything of some runs."""
        self.totals.reset(runs)
