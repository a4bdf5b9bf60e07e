"""Hedge: exponential weights over all drafters, each judged by the tokens that any of them got verified."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext
from specsim.policies.arms.step_reward import StepReward


@dataclass(kw_only=True)
class Hedge:
    """Pull arm i with chance w_i; after a step, w_i *= exp(rate * worth of arm i) for every arm, then mix.

    Verified tokens say of every drafter whether it would have proposed them, so one step teaches all arms and no
    step is spent on exploring. Its reward is the accepted fraction: what an unpulled drafter would have taken in
    seconds, no step tells.

    num_arms  drafters of the run
    rate      learning rate
    share     weight that is spread evenly after every step, so that an arm can come back (0: never forgets)

    Source: Freund and Schapire 1997; fixed share as in Herbster and Warmuth 1998; HedgeSpec (arXiv 2510.20064).
    """

    num_arms: Annotated[int, Field(ge=1)]
    rate: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = 0.5
    share: Annotated[float, Field(ge=0, lt=1)] = 1e-3

    full_information: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.weights = [1.0 / self.num_arms] * self.num_arms
        self._steps = StepReward()

    @property
    def arms(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.num_arms))

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """An arm drawn from the weights by one uniform draw."""
        draw, below = rng.random(), 0.0
        for arm, weight in enumerate(self.weights):
            below += weight
            if draw < below:
                return arm
        return self.num_arms - 1  # rounding left the last sum below the draw

    def update(self, arm: int, outcome: Outcome) -> None:
        """Weigh every arm by what the verified tokens say of it.

        Raises  ValueError when the engine does not say what the other drafters would have had accepted
        """
        if outcome.counterfactual is None:
            raise ValueError("hedge learns from every drafter, but the outcome tells of the pulled one alone")
        gains = outcome.counterfactual.num_accepted.sum(axis=1).tolist()
        exposures = outcome.counterfactual.num_tested.sum(axis=1).tolist()
        tested = [(gain, exposure) for gain, exposure in zip(gains, exposures, strict=True) if exposure > 0]
        for gain, exposure in tested:
            self._steps.add(gain, exposure)
        if not tested:
            return
        worths = [self._steps.worth(gain, exposure) for gain, exposure in zip(gains, exposures, strict=True)]
        raised = [weight * math.exp(self.rate * worth) for weight, worth in zip(self.weights, worths, strict=True)]
        total = sum(raised)
        spread = self.share / self.num_arms
        self.weights = [(1.0 - self.share) * weight / total + spread for weight in raised]

    def state_dict(self) -> dict[str, Any]:
        """The weights, which sum to 1, and what a step was worth."""
        return {"weights": list(self.weights), "steps": self._steps.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`.

        Raises  ValueError when it is of another number of arms
        """
        if len(state["weights"]) != self.num_arms:
            raise ValueError(f"Hedge weights need {self.num_arms} arms, got {state}")
        self.weights = list(state["weights"])
        self._steps.load_state_dict(state["steps"])
