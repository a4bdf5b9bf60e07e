"""Thompson sampling on throughput: draw each arm's mean from a normal belief, pull the largest."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext
from specsim.policies.arms.arm_totals import ArmTotals
from specsim.policies.rewards import REWARDS, RewardName, reward_scale


@dataclass(kw_only=True)
class ThompsonGaussian:
    """Pull each arm once, then the one with the largest draw of mean + sigma / sqrt(n) * standard normal.

    num_arms  drafters of the run
    reward    what makes an arm good, see specsim.policies.rewards
    sigma     standard deviation of one step's reward; 1/2 is the largest of any reward in [0, 1]
    scale     reward that counts as 1, see specsim.policies.rewards.reward_scale

    The deviation is assumed, not estimated: an arm whose first steps happen to agree would otherwise look certain,
    and might never be tried again.

    Source: Gaussian Thompson sampling as in Agrawal and Goyal 2013; FlashSpec.
    """

    num_arms: Annotated[int, Field(ge=1)]
    reward: RewardName = "throughput"
    sigma: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    def __post_init__(self) -> None:
        self.totals = ArmTotals(self.num_arms)

    @property
    def arms(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.num_arms))

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """The arm with the largest draw, the first of equals."""
        unpulled = self.totals.unpulled()
        if unpulled is not None:
            return unpulled
        means = self.totals.means()
        scale = reward_scale(self.reward, means, self.scale)
        draws = [
            mean / scale + self.sigma / math.sqrt(n) * rng.standard_normal()
            for mean, n in zip(means, self.totals.pulls, strict=True)
        ]
        return draws.index(max(draws))

    def update(self, arm: int, outcome: Outcome) -> None:
        """Add one step to its arm's sums."""
        self.totals.add(arm, *REWARDS[self.reward](outcome))

    def state_dict(self) -> dict[str, Any]:
        """The sums."""
        return self.totals.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.totals.load_state_dict(state)
