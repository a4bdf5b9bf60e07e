"""One drafter, always."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext
from specsim.policies.stateless import Stateless


@dataclass(frozen=True, kw_only=True)
class FixedArm(Stateless):
    """Always pull the same arm.

    num_arms  drafters of the run
    arm       index of the one to use
    """

    num_arms: Annotated[int, Field(ge=1)]
    arm: Annotated[int, Field(ge=0)] = 0

    def __post_init__(self) -> None:
        if self.arm >= self.num_arms:
            raise ValueError(f"arm {self.arm} of {self.num_arms} drafters: allowed 0 to {self.num_arms - 1}")

    @property
    def arms(self) -> tuple[int, ...]:
        """Only this one."""
        return (self.arm,)

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """Index of the arm."""
        return self.arm

    def update(self, arm: int, outcome: Outcome) -> None:
        """Nothing to learn."""
