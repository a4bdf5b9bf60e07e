"""Contextual: any other drafter policy, with a state of its own for each domain or each request."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext
from specsim.policies.base import DrafterPolicy
from specsim.policies.config import PolicyConfig
from specsim.policies.parts import parts


def _listed(value: Any) -> Any:
    """As written in a controller's text: `ucb1/c=.5`."""
    return value.split("/") if isinstance(value, str) else value


@dataclass(kw_only=True)
class Contextual:
    """Pull what the state of a request's own domain pulls, and teach each domain by its own requests.

    num_arms  drafters of the run
    policy    the drafter policy of each state, and its options: `ucb1/reward=throughput/c=.5`
    by        what has a state of its own: a `domain`, or a `request`, which starts anew and is forgotten when it leaves
    scope     one arm a `batch`, that of its most frequent domain; or one arm a `request`, each its own

    Requests whose domain or number is unknown share one state. A step's seconds are split evenly among its requests.
    """

    num_arms: Annotated[int, Field(ge=1)]
    policy: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_listed)] = ("ucb1",)
    by: Literal["domain", "request"] = "domain"
    scope: Literal["batch", "request"] = "batch"

    def __post_init__(self) -> None:
        if self.by == "request" and self.scope == "batch":
            raise ValueError("by=request needs scope=request: the states of single requests cannot agree on one arm")
        self.full_information = getattr(self.build_wrapped(), "full_information", False)
        self._states: dict[str, DrafterPolicy] = {}

    @property
    def arms(self) -> tuple[int, ...]:
        """All that the wrapped policy could pull."""
        return self.build_wrapped().arms

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """One arm for the batch: that of its most frequent domain, the first in the batch of equally frequent ones."""
        frequent = Counter(self._keys(context)).most_common(1)
        return self._of(frequent[0][0] if frequent else "").pull(context, rng)

    def pull_each(self, context: StepContext, rng: np.random.Generator) -> list[int]:
        """[B] an arm for each request, each asked of its own state as if it were alone."""
        keys = self._keys(context) or ("",) * context.batch
        if self.by == "request":
            self._states = {key: state for key, state in self._states.items() if key in keys}
        alone = replace(context, batch=1, domains=(), requests=())
        return [self._of(key).pull(alone, rng) for key in keys]

    def update(self, arm: int, outcome: Outcome) -> None:
        """Teach each state by its own requests."""
        keys = tuple(map(str, outcome.requests)) if self.by == "request" else outcome.domains
        for key, part in parts(outcome, keys):
            self._of(key).update(arm, part)

    def state_dict(self) -> dict[str, Any]:
        """Each state."""
        return {key: policy.state_dict() for key, policy in self._states.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._states = {}
        for key, own in state.items():
            self._of(key).load_state_dict(own)

    def build_wrapped(self) -> DrafterPolicy:
        """The wrapped policy, fresh.

        Raises  ValueError when its name or an option is unknown
        """
        from specsim.policies.build import build_arms  # the registry names this class too

        name, *options = self.policy
        if name == "contextual":
            raise ValueError("contextual wraps any policy but itself")
        pairs = [option.partition("=") for option in options]
        return build_arms(PolicyConfig(name=name, options={key: value for key, _, value in pairs}), self.num_arms)

    def _keys(self, context: StepContext) -> tuple[str, ...]:
        return tuple(map(str, context.requests)) if self.by == "request" else context.domains

    def _of(self, key: str) -> DrafterPolicy:
        if key not in self._states:
            self._states[key] = self.build_wrapped()
        return self._states[key]
