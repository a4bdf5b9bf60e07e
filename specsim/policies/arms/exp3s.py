"""EXP3.S: exponential weights that assume nothing of the rewards and keep every arm alive."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext
from specsim.policies.arms.step_reward import StepReward
from specsim.policies.rewards import REWARDS, UNIT_REWARDS, RewardName


@dataclass(kw_only=True)
class EXP3S:
    """Pull arm i with chance p_i = (1 - gamma) w_i / sum w + gamma / K.

    After worth x of the pulled arm: w_i *= exp(gamma x / (p_i K)); then every w += e alpha / K * sum w.

    num_arms  drafters of the run, K
    reward    what makes an arm good, see specsim.policies.rewards; learned step by step, see `StepReward`
    gamma     share of steps that explore
    alpha     share of its weight that an arm passes to all, about one over the steps
    scale     reward that counts as 1; worth beyond it is cut (None: 1 for a reward in [0, 1], else the largest
              worth of any step so far)

    Source: Auer, Cesa-Bianchi, Freund, Schapire 2002, figure 4.
    """

    num_arms: Annotated[int, Field(ge=1)]
    reward: RewardName = "accepted_fraction"
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.05
    alpha: Annotated[float, Field(ge=0, le=1)] = 1e-4
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    def __post_init__(self) -> None:
        self.weights = [1.0 / self.num_arms] * self.num_arms
        self._steps = StepReward()
        self._largest = 1.0 if self.reward in UNIT_REWARDS else 0.0

    @property
    def arms(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.num_arms))

    def chances(self) -> list[float]:
        """[A] chance of each arm."""
        return [(1.0 - self.gamma) * weight + self.gamma / self.num_arms for weight in self.weights]

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """An arm drawn from `chances` by one uniform draw."""
        draw, below = rng.random(), 0.0
        for arm, chance in enumerate(self.chances()):
            below += chance
            if draw < below:
                return arm
        return self.num_arms - 1  # rounding left the last sum below the draw

    def update(self, arm: int, outcome: Outcome) -> None:
        """Raise the arm's weight by what it brought over its chance, so that rare arms count as much."""
        gain, exposure = REWARDS[self.reward](outcome)
        if exposure == 0.0:
            return
        self._steps.add(gain, exposure)
        worth = self._steps.worth(gain, exposure)
        if self.scale is None and self.reward not in UNIT_REWARDS:
            self._largest = max(self._largest, worth)
        reward = min(max(worth / (self.scale or self._largest or 1.0), 0.0), 1.0)
        self.weights[arm] *= math.exp(self.gamma * reward / (self.chances()[arm] * self.num_arms))
        shared = math.e * self.alpha / self.num_arms
        raised = [weight + shared for weight in self.weights]
        total = sum(raised)
        self.weights = [weight / total for weight in raised]

    def state_dict(self) -> dict[str, Any]:
        """The weights, which sum to 1, and what a step was worth."""
        return {"weights": list(self.weights), "steps": self._steps.state_dict(), "largest": self._largest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`.

        Raises  ValueError when it is of another number of arms
        """
        if len(state["weights"]) != self.num_arms:
            raise ValueError(f"EXP3.S weights need {self.num_arms} arms, got {state}")
        self.weights, self._largest = list(state["weights"]), state["largest"]
        self._steps.load_state_dict(state["steps"])
