"""Discounted Thompson sampling on any reward: a normal belief that widens as the past fades."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext
from specsim.policies.arms.discounted_totals import DiscountedTotals
from specsim.policies.rewards import REWARDS, RewardName, reward_scale


@dataclass(kw_only=True)
class DiscountedThompsonGaussian:
    """Pull each arm once, then the one with the largest draw of mean + sigma / sqrt(n) * standard normal, n faded.

    num_arms  drafters of the run
    reward    what makes an arm good, see specsim.policies.rewards
    sigma     standard deviation of one step's reward; 1/2 is the largest of any reward in [0, 1]
    discount  factor by which every arm's sums fade at every step; .998 remembers about 500 steps
    scale     reward that counts as 1, see specsim.policies.rewards.reward_scale

    Source: Gaussian Thompson sampling as in Agrawal and Goyal 2013, faded as in Raj and Kalyani 2017.
    """

    num_arms: Annotated[int, Field(ge=1)]
    reward: RewardName = "throughput"
    sigma: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5
    discount: Annotated[float, Field(gt=0, le=1)] = 0.998
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    def __post_init__(self) -> None:
        self.totals = DiscountedTotals(self.num_arms, self.discount)

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
            for mean, n in zip(means, self.totals.weight, strict=True)
        ]
        return draws.index(max(draws))

    def update(self, arm: int, outcome: Outcome) -> None:
        """Fade every arm's sums and add one step to its arm's."""
        self.totals.add(arm, *REWARDS[self.reward](outcome))

    def state_dict(self) -> dict[str, Any]:
        """The faded sums."""
        return self.totals.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.totals.load_state_dict(state)
