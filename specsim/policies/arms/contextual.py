"""Contextual by domain: any other drafter policy, with a state of its own for each domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from specsim.core import Counterfactual, Outcome, StepContext, StepSeconds
from specsim.policies.base import DrafterPolicy
from specsim.policies.config import PolicyConfig


def _listed(value: Any) -> Any:
    """As written in a controller's text: `ucb1/c=.5`."""
    return value.split("/") if isinstance(value, str) else value


@dataclass(kw_only=True)
class Contextual:
    """Pull what the state of the batch's most frequent domain pulls, and teach each domain by its own requests.

    num_arms  drafters of the run
    policy    the drafter policy of each domain, and its options: `ucb1/reward=throughput/c=.5`

    Requests whose domain is unknown share one state. A step's seconds are split evenly among its requests.
    """

    num_arms: Annotated[int, Field(ge=1)]
    policy: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_listed)] = ("ucb1",)

    def __post_init__(self) -> None:
        self.full_information = getattr(self.build_wrapped(), "full_information", False)
        self._by_domain: dict[str, DrafterPolicy] = {}

    @property
    def arms(self) -> tuple[int, ...]:
        """All that the wrapped policy could pull."""
        return self.build_wrapped().arms

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """The arm for the most frequent domain, the first in the batch of equally frequent ones."""
        frequent = Counter(context.domains).most_common(1)
        return self._of(frequent[0][0] if frequent else "").pull(context, rng)

    def update(self, arm: int, outcome: Outcome) -> None:
        """Teach each domain by its own requests."""
        for domain, part in by_domain(outcome):
            self._of(domain).update(arm, part)

    def state_dict(self) -> dict[str, Any]:
        """Each domain's state."""
        return {domain: policy.state_dict() for domain, policy in self._by_domain.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._by_domain = {}
        for domain, own in state.items():
            self._of(domain).load_state_dict(own)

    def _of(self, domain: str) -> DrafterPolicy:
        if domain not in self._by_domain:
            self._by_domain[domain] = self.build_wrapped()
        return self._by_domain[domain]

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


def by_domain(outcome: Outcome) -> Iterator[tuple[str, Outcome]]:
    """An outcome taken apart: the requests of each domain, in the order in which domains appear.

    The parts have no draft; their seconds are their share of the requests.
    """
    domains = list(dict.fromkeys(outcome.domains))
    if len(domains) <= 1:
        yield (domains[0] if domains else ""), outcome
        return
    of = np.array([domains.index(domain) for domain in outcome.domains])
    for index, domain in enumerate(domains):
        own = of == index
        yield (
            domain,
            replace(
                outcome,
                draft=None,
                num_verify=outcome.num_verify[own],
                num_accepted=outcome.num_accepted[own],
                num_emitted=outcome.num_emitted[own],
                seconds=_scaled(outcome.seconds, float(own.mean())),
                domains=(domain,) * int(own.sum()),
                counterfactual=_columns(outcome.counterfactual, own),
            ),
        )


def _scaled(seconds: StepSeconds, share: float) -> StepSeconds:
    return StepSeconds(
        draft=seconds.draft * share,
        plan=seconds.plan * share,
        verify=seconds.verify * share,
        host=seconds.host * share,
        switch=seconds.switch * share,
        prefill=seconds.prefill * share,
    )


def _columns(counterfactual: Counterfactual | None, own: np.ndarray) -> Counterfactual | None:
    if counterfactual is None:
        return None
    return Counterfactual(counterfactual.num_accepted[:, own], counterfactual.num_tested[:, own])
