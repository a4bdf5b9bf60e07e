"""As many drafts as a table gives the batch size: what engines let an operator configure."""

from __future__ import annotations

from collections import deque
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from specsim.core import DrafterSpec, Outcome, StepContext
from specsim.interop.schedules import Schedule, depth_at, read_schedule
from specsim.policies.base import BudgetTiming
from specsim.policies.budget.verify_all import VerifyAll


class AcceptanceGate:
    """Shuts for good once drafts are accepted too seldom.

    threshold  least mean acceptance rate (None: it never shuts)
    window     steps that drafted over which the mean is taken, and before which it never shuts
    """

    def __init__(self, threshold: float | None, window: int) -> None:
        self.threshold = threshold
        self.rates: deque[float] = deque(maxlen=window)
        self.shut = False

    def add(self, num_accepted: int, num_drafts: int) -> None:
        """Count one step."""
        if self.threshold is None or self.shut or not num_drafts:
            return
        self.rates.append(num_accepted / num_drafts)
        self.shut = len(self.rates) == self.rates.maxlen and sum(self.rates) / len(self.rates) < self.threshold


@dataclass(frozen=True, kw_only=True)
class BatchSchedule(VerifyAll):
    """Draft as many tokens as a table gives the batch size, and verify them all.

    schedule     rows of start batch and depth, or an engine's own syntax, see `interop.schedules.read_schedule`
    gate         acceptance rate below which speculation is switched off for good (None: never)
    gate_window  steps over which that rate is averaged, and which must have passed

    The gate's rate is accepted over drafted, step by step, as TensorRT-LLM counts it.

    Source: vLLM pull request 32374; TensorRT-LLM pull requests 10860 (schedule) and 12905 (gate).
    """

    schedule: Annotated[Schedule, BeforeValidator(read_schedule)]
    gate: Annotated[float, Field(gt=0, le=1)] | None = None
    gate_window: Annotated[int, Field(ge=1)] = 100

    timing: ClassVar[BudgetTiming] = "past"
    memory: ClassVar[AcceptanceGate]  # an attribute, not an option: it is no field

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", AcceptanceGate(self.gate, self.gate_window))

    @property
    def max_depth(self) -> int:
        """The deepest row."""
        return max(depth for _, depth in self.schedule)

    def draft_depth(self, context: StepContext, drafter: DrafterSpec) -> int:
        """The row of this batch size; 0 behind a shut gate."""
        return 0 if self.memory.shut else depth_at(self.schedule, context.batch)

    def observe(self, outcome: Outcome) -> None:
        """Let the gate see what was accepted."""
        if outcome.order.depth and outcome.draft is not None:
            self.memory.add(int(outcome.num_accepted.sum()), int(outcome.num_verify.sum()))

    def state_dict(self) -> dict[str, Any]:
        """What the gate has seen."""
        return {"rates": list(self.memory.rates), "shut": self.memory.shut}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.memory.rates = deque(state["rates"], maxlen=self.gate_window)
        self.memory.shut = bool(state["shut"])
