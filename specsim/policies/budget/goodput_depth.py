"""The depth that promises most tokens per second, settled before drafting from what was accepted so far."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import DrafterSpec, Outcome, StepContext
from specsim.errors import InputError
from specsim.policies.acceptance_memory import AcceptanceMemory
from specsim.policies.base import BudgetTiming
from specsim.policies.budget.depth_option import DepthOption
from specsim.policies.budget.verify_all import VerifyAll
from specsim.policies.linear_seconds import LinearSeconds


class GoodputMemory:
    """What is remembered of acceptance and of seconds, and whose step is under way."""

    def __init__(self, alpha: float, prior: float) -> None:
        self.acceptance = AcceptanceMemory(alpha, prior)
        self.seconds = LinearSeconds(alpha)
        self.drafter: str | None = None


@dataclass(frozen=True, kw_only=True)
class GoodputDepth(VerifyAll, DepthOption):
    """Draft to the depth k with the largest goodput, and verify all.

    goodput(k) = B (1 + a(1) + a(1) a(2) + ... + a(1) ... a(k)) / seconds of a step with k drafts a request

    a(j) is the share of draft j accepted lately where it was tested at all; a position not tested any more forgets,
    and its optimistic prior makes the policy draft deep again now and then, to look.

    model  seconds from the cost `table`, or a `linear` model fitted to the steps so far, where an engine has no table
    alpha  what every step takes off the weight of those before it, in a and in the linear model
    prior  chance assumed of a position before its first test, as strong as one test
    depth  most draft tokens a request (None: the drafter's `max_depth`)

    Source: SmartSpec / TurboSpec (arXiv 2406.14066); vLLM pull requests 44336 and 47111, whose a is by position.
    """

    model: Literal["table", "linear"] = "table"
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    prior: Annotated[float, Field(ge=0, le=1)] = 1.0

    timing: ClassVar[BudgetTiming] = "past"
    depth_by_drafter: ClassVar[bool] = True
    memory: ClassVar[GoodputMemory]  # an attribute, not an option: it is no field

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", GoodputMemory(self.alpha, self.prior))

    def draft_depth(self, context: StepContext, drafter: DrafterSpec) -> int:
        """The depth of the largest goodput, the least of equal ones.

        Raises  InputError when the engine has no cost table and `model` is `table`
        """
        self.memory.drafter = drafter.name
        most = min(super().draft_depth(context, drafter), drafter.max_depth)
        survival = np.cumprod(self.memory.acceptance.chances(drafter.name, most))
        tokens = 1.0 + np.concatenate([[0.0], np.cumsum(survival)])
        return int(np.argmax(tokens / self._seconds(context, drafter, most)))

    def observe(self, outcome: Outcome) -> None:
        """Learn what was accepted, and how long the step took."""
        if self.memory.drafter is not None:
            self.memory.acceptance.add(self.memory.drafter, outcome)
            self.memory.seconds.add(outcome)
        self.memory.drafter = None

    def state_dict(self) -> dict[str, Any]:
        """Counts by position, and the sums of the linear model."""
        return {"acceptance": self.memory.acceptance.state_dict(), "seconds": self.memory.seconds.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.memory.acceptance.load_state_dict(state["acceptance"])
        self.memory.seconds.load_state_dict(state["seconds"])
        self.memory.drafter = None

    def _seconds(self, context: StepContext, drafter: DrafterSpec, most: int) -> np.ndarray:
        """[most + 1] float64, of a step at every depth."""
        if self.model == "linear":
            return self.memory.seconds.predict(context.batch, np.arange(most + 1))
        if context.price is None:
            raise InputError("goodput_depth: this engine has no cost table to read seconds from; use model=linear")
        return np.array([float(context.price(drafter, depth).seconds[-1]) for depth in range(most + 1)])
