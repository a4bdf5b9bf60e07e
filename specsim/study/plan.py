"""What a study runs: the policies with their references, and one task for each run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from specsim import __version__
from specsim.config import StudyConfig
from specsim.core import DrafterSpec
from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.policies.build import build_controller
from specsim.policies.config import ControllerConfig, PolicyConfig, parse
from specsim.policies.controller import Controller
from specsim.sim import ClosedLoop, EngineConfig, Gamma, Workload
from specsim.study.inputs import open_inputs
from specsim.trace import TraceLike

AUTOREGRESSIVE = "autoregressive"
CLAIRVOYANT = "clairvoyant"
FIXED_BUDGETS = (AUTOREGRESSIVE, "fixed_depth", "fixed_ratio")
"""Budget policies that choose nothing while they run."""

FEWEST_REQUESTS = 8
OPEN_LOOP_REQUESTS = 64


@dataclass(frozen=True)
class Policy:
    """One row of a study.

    config      what builds its controller
    label       what tables call it
    fixed       whether it is a fixed choice, which regret is measured against
    bound       whether it is a candidate for the clairvoyant bound
    num_arms    drafters it chooses among; 0 when it never drafts
    """

    config: ControllerConfig
    label: str
    fixed: bool
    bound: bool
    num_arms: int


@dataclass(frozen=True)
class Task:
    """One run.

    table       index of the cost table
    policy      index of the policy
    batch       concurrency (0: open loop)
    rate        requests a second (0: closed loop)
    seed        of the request order, the arrivals and the policy's draws
    """

    table: int
    policy: int
    batch: int
    rate: float
    seed: int


class Plan:
    """A study with everything it names opened, checked before the first run.

    study       what was asked for
    Raises      InputError when inputs, policies and engine do not fit together
    """

    def __init__(self, study: StudyConfig) -> None:
        self.study = study
        self.trace: TraceLike
        self.tables: list[CostTable]
        self.trace, self.tables = open_inputs(study)
        self.engine = EngineConfig(**study.engine.model_dump())
        for batch in study.batches:
            if batch > self.engine.max_num_seqs:
                raise InputError(f"batch {batch} exceeds max_num_seqs {self.engine.max_num_seqs} of the engine")
        self.policies = self._policies()
        self._check_costs()

    @cached_property
    def tasks(self) -> list[Task]:
        """Every run, those with the most steps first, so that the last ones to finish are short."""
        loads = [(batch, 0.0) for batch in self.study.batches] + [(0, rate) for rate in self.study.rates]
        return [
            Task(table, policy, batch, rate, seed)
            for batch, rate in loads
            for table in range(len(self.tables))
            for policy in range(len(self.policies))
            for seed in self.study.seeds
        ]

    def controller(self, policy: int) -> Controller:
        """A new controller that has learned nothing."""
        return build_controller(self.policies[policy].config, self.trace.drafters, allow_lossy=self.study.allow_lossy)

    def workload(self, task: Task) -> Workload:
        """The arrivals of one run; they depend on the load and the seed, never on the policy."""
        requests = self.study.requests
        if task.batch:
            enough = max(FEWEST_REQUESTS, self.study.requests_per_slot * task.batch)
            return ClosedLoop(task.batch, enough if requests is None else requests)
        return Gamma(task.rate, OPEN_LOOP_REQUESTS if requests is None else requests, self.study.burstiness)

    def records_steps(self, task: Task) -> bool:
        """Whether the run keeps its steps, for the plots over time."""
        return task.seed == self.study.seeds[0]

    def key(self, task: Task) -> str:
        """Hash of everything that determines the run."""
        parts: dict[str, Any] = {
            "specsim": __version__,
            "trace": self.trace.manifest.model_dump(mode="json"),
            "domains": self.study.domains,
            "table": self.tables[task.table].meta.model_dump(mode="json"),
            "prices": self.study.draft_costs | self.study.tables[task.table].draft_costs,
            "policy": self.policies[task.policy].config.model_dump(mode="json"),
            "label": self.policies[task.policy].label,
            "load": [task.batch, task.rate, self.study.burstiness, self.workload(task).num_requests],  # type: ignore[union-attr]
            "engine": self.study.engine.model_dump(mode="json"),
            "slo": None if self.study.slo is None else self.study.slo.model_dump(mode="json"),
            "options": [self.study.allow_lossy, self.study.extrapolate, self.records_steps(task), task.seed],
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]

    def _check_costs(self) -> None:
        """Ask every table for the dearest and the cheapest step of each policy, rather than fail after an hour."""
        for policy in self.policies:
            controller = build_controller(policy.config, self.trace.drafters, allow_lossy=self.study.allow_lossy)
            for batch in self.study.batches:
                self.engine.check_lookahead(controller.max_depth, batch)
                for table in self.tables:
                    table.step_cost(None, batch, 0, 0.0)
                    for drafter in controller.pullable if controller.max_depth else ():
                        depth = min(controller.max_depth, drafter.max_depth)
                        table.step_cost(drafter, batch, depth, 0.0)

    def _policies(self) -> list[Policy]:
        """Autoregressive first, then those asked for, then the candidates for the bound."""
        asked = [self._policy(config) for config in self.study.policies if config.budget.name != AUTOREGRESSIVE]
        policies = [self._policy(parse(AUTOREGRESSIVE)), *asked]
        if self.study.clairvoyant and self.trace.kind == "position_indexed":
            policies += [self._policy(config, bound=True) for config in self._bounds(policies)]
        labels = [policy.label for policy in policies]
        for index, label in enumerate(labels):
            if label in labels[:index]:
                raise InputError(f"policy {label!r} is given twice; give one of them another label")
        return policies

    def _policy(self, config: ControllerConfig, bound: bool = False) -> Policy:
        controller = build_controller(config, self.trace.drafters, allow_lossy=self.study.allow_lossy)
        num_arms = len(controller.pullable) if controller.max_depth else 0
        fixed = config.budget.name in FIXED_BUDGETS and num_arms <= 1
        label = f"{CLAIRVOYANT} bound: {controller.label}" if bound else controller.label
        return Policy(config, label, fixed, bound, num_arms)

    def _bounds(self, policies: list[Policy]) -> list[ControllerConfig]:
        """One clairvoyant policy for each drafter and depth that some policy may use.

        Knowing what will be accepted says how much to verify, not with whom or how deep to draft: so the bound
        is the best of these. A block drafter is asked for all it has: a shorter block costs it as much.
        """
        wanted: dict[tuple[str, int], None] = {}
        for policy in policies:
            controller = build_controller(policy.config, self.trace.drafters, allow_lossy=self.study.allow_lossy)
            if not controller.max_depth or controller.clairvoyant:
                continue
            for drafter in controller.pullable:
                depth = controller.budget_policy.max_depth or drafter.max_depth
                wanted[drafter.name, _bound_depth(drafter, depth)] = None
        return [
            ControllerConfig(
                budget=PolicyConfig(name=CLAIRVOYANT, options={"depth": depth}), drafter=PolicyConfig(name=drafter)
            )
            for drafter, depth in wanted
        ]


def _bound_depth(drafter: DrafterSpec, depth: int) -> int:
    return drafter.max_depth if drafter.passes == "per_block" else min(depth, drafter.max_depth)
