"""Thompson sampling on throughput: draw each arm's mean from a normal belief, pull the largest."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext
from specsim.policies.arms.arm_totals import ArmTotals
from specsim.policies.rewards import REWARDS, RewardName


@dataclass(kw_only=True)
class ThompsonGaussian:
    """Normal belief on an arm's ratio of totals r = sum x / sum y, each arm pulled once first.

    draw = r * (1 + s * standard normal),  s^2 = (sigma^2 + sum of e^2) / n^2,  e = (x - r y) / (r mean y)

    The spread s is the delta method's standard error of a ratio of totals, relative to it, with one pseudo-step
    of relative deviation `sigma` so that an arm of one pull is still uncertain. It has no unit, so a reward needs
    no scale.

    num_arms  drafters of the run
    reward    what makes an arm good, see specsim.policies.rewards
    sigma     relative deviation of one step assumed beforehand

    Source: Gaussian Thompson sampling as in Agrawal and Goyal 2013; FlashSpec.
    """

    num_arms: Annotated[int, Field(ge=1)]
    reward: RewardName = "throughput"
    sigma: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5

    def __post_init__(self) -> None:
        self.totals = ArmTotals(self.num_arms)
        self._squares = [[0.0, 0.0, 0.0] for _ in range(self.num_arms)]  # sums of x^2, x y, y^2

    @property
    def arms(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.num_arms))

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """The arm with the largest draw, the first of equals."""
        unpulled = self.totals.unpulled()
        if unpulled is not None:
            return unpulled
        draws = [
            mean * (1.0 + self._spread(arm, mean) * rng.standard_normal())
            for arm, mean in enumerate(self.totals.means())
        ]
        return draws.index(max(draws))

    def update(self, arm: int, outcome: Outcome) -> None:
        """Add one step to its arm's sums."""
        gain, exposure = REWARDS[self.reward](outcome)
        self.totals.add(arm, gain, exposure)
        squares = self._squares[arm]
        squares[0] += gain * gain
        squares[1] += gain * exposure
        squares[2] += exposure * exposure

    def state_dict(self) -> dict[str, Any]:
        """The sums."""
        return {"totals": self.totals.state_dict(), "squares": [list(squares) for squares in self._squares]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`.

        Raises  ValueError when it is of another number of arms
        """
        if len(state["squares"]) != self.num_arms:
            raise ValueError(f"Thompson sums need {self.num_arms} arms, got {state}")
        self.totals.load_state_dict(state["totals"])
        self._squares = [list(squares) for squares in state["squares"]]

    def _spread(self, arm: int, mean: float) -> float:
        n, gain = self.totals.pulls[arm], self.totals.gain[arm]
        if gain == 0.0:
            return 0.0
        xx, xy, yy = self._squares[arm]
        residual = max(xx - 2.0 * mean * xy + mean * mean * yy, 0.0)  # a sum of squares that rounding may push below 0
        return math.sqrt(self.sigma**2 + residual * (n / gain) ** 2) / n
