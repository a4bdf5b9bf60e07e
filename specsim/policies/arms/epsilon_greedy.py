"""Epsilon-greedy: the best arm so far, and now and then any arm."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext
from specsim.policies.arms.arm_totals import ArmTotals
from specsim.policies.rewards import REWARDS, RewardName


@dataclass(kw_only=True)
class EpsilonGreedy:
    """Pull each arm once, then any arm with chance epsilon, else the one with the largest mean.

    num_arms  drafters of the run
    reward    what makes an arm good, see specsim.policies.rewards
    epsilon   share of steps that explore; its regret grows by epsilon times the mean gap a step, for ever

    Source: Sutton and Barto, Reinforcement Learning, section 2.2.
    """

    num_arms: Annotated[int, Field(ge=1)]
    reward: RewardName = "accepted_fraction"
    epsilon: Annotated[float, Field(ge=0, le=1)] = 0.05

    def __post_init__(self) -> None:
        self.totals = ArmTotals(self.num_arms)

    @property
    def arms(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.num_arms))

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """An arm by one uniform draw: below epsilon it also says which arm to explore."""
        unpulled = self.totals.unpulled()
        if unpulled is not None:
            return unpulled
        draw = rng.random()
        if draw < self.epsilon:
            return min(int(draw / self.epsilon * self.num_arms), self.num_arms - 1)
        means = self.totals.means()
        return means.index(max(means))

    def update(self, arm: int, outcome: Outcome) -> None:
        """Add one step to its arm's sums."""
        self.totals.add(arm, *REWARDS[self.reward](outcome))

    def state_dict(self) -> dict[str, Any]:
        """The sums."""
        return self.totals.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.totals.load_state_dict(state)
