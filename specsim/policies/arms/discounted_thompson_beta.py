"""Discounted Thompson sampling on accept tests: a Beta belief that returns to its prior as the past fades."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext
from specsim.policies.rewards import accepted_and_rejected


@dataclass(kw_only=True)
class DiscountedThompsonBeta:
    """Beta belief on the chance that a tested draft is accepted, its counts fading at every step for every arm.

    num_arms  drafters of the run
    prior     successes and failures assumed of each arm beforehand, which do not fade; 1 is the uniform prior
    discount  factor by which every arm's counts fade at every step; .998 remembers about 500 steps

    Source: Raj and Kalyani 2017 (arXiv 1707.09727), dTS.
    """

    num_arms: Annotated[int, Field(ge=1)]
    prior: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    discount: Annotated[float, Field(gt=0, le=1)] = 0.998

    def __post_init__(self) -> None:
        self.accepted = [0.0] * self.num_arms
        self.rejected = [0.0] * self.num_arms

    @property
    def arms(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.num_arms))

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """The arm with the largest draw, the first of equals."""
        draws = [
            rng.beta(self.prior + accepted, self.prior + rejected)
            for accepted, rejected in zip(self.accepted, self.rejected, strict=True)
        ]
        return draws.index(max(draws))

    def update(self, arm: int, outcome: Outcome) -> None:
        """Fade every arm's counts and add the accept tests of one step."""
        accepted, rejected = accepted_and_rejected(outcome)
        self.accepted = [count * self.discount for count in self.accepted]
        self.rejected = [count * self.discount for count in self.rejected]
        self.accepted[arm] += accepted
        self.rejected[arm] += rejected

    def state_dict(self) -> dict[str, Any]:
        """The faded counts."""
        return {"accepted": list(self.accepted), "rejected": list(self.rejected)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`.

        Raises  ValueError when it is of another number of arms
        """
        if not len(state["accepted"]) == len(state["rejected"]) == self.num_arms:
            raise ValueError(f"Thompson counts need {self.num_arms} arms, got {state}")
        self.accepted, self.rejected = list(state["accepted"]), list(state["rejected"])
