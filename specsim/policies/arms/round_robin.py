"""Each drafter in turn: the exploration-only baseline, and the way to measure every arm equally."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext


@dataclass(kw_only=True)
class RoundRobin:
    """Pull the arms in order, then start again.

    num_arms  drafters of the run
    """

    num_arms: Annotated[int, Field(ge=1)]

    def __post_init__(self) -> None:
        self._next = 0

    @property
    def arms(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.num_arms))

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """The next arm in turn."""
        arm = self._next
        self._next = (arm + 1) % self.num_arms
        return arm

    def update(self, arm: int, outcome: Outcome) -> None:
        """Nothing to learn: turns do not depend on what they brought."""

    def state_dict(self) -> dict[str, Any]:
        """Whose turn it is."""
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._next = int(state["next"])
