"""A recorded live run, opened so that its steps can be taken again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from specsim.core import DrafterSpec, StepSeconds
from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.policies.build import build_controller
from specsim.policies.config import ControllerConfig
from specsim.policies.controller import Controller
from specsim.serving.run_file import COST_FOLDER, RunFile, Submission, read_run_file
from specsim.serving.slots import Request
from specsim.trace import Trace


@dataclass(frozen=True)
class LiveRun:
    """What the recorder of a live engine left behind.

    folder  where it lies
    facts   its run.json
    trace   the blocks that the run visited
    steps   every engine step, records of `telemetry.STEP_DTYPE`
    cost    the cost table it decided by
    """

    folder: Path
    facts: RunFile
    trace: Trace
    steps: np.ndarray
    cost: CostTable

    @classmethod
    def open(cls, folder: str | Path) -> LiveRun:
        """Open a run folder, every file checked.

        Raises  InputError for a folder that no live run was recorded to, a run that was killed, or a damaged file
        """
        path = Path(folder)
        facts = read_run_file(path)
        if not facts.complete:
            raise InputError(
                f"{path}: the run was cut short, so its steps cannot be taken again; allowed: a closed run"
                " (--recover makes a trace of the requests that had ended)"
            )
        trace = Trace.open(path, verify_hashes=True)
        steps = trace.steps()
        if steps is None or len(steps) != facts.num_steps:
            found = "none" if steps is None else len(steps)
            raise InputError(f"{path}: {found} engine steps, but run.json says {facts.num_steps}")
        _check_consistent(path, facts, trace)
        return cls(path, facts, trace, steps, _cost(path, facts))

    @property
    def drafters(self) -> tuple[DrafterSpec, ...]:
        """The arms."""
        return self.trace.drafters

    def controller(self) -> Controller:
        """The controller as it was before the first step.

        Raises  InputError when run.json names a policy that this version does not have, or a state of another one
        """
        section = self.facts.controller
        try:
            config = ControllerConfig.model_validate(section.config)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            raise InputError(f"{self.folder}/run.json: controller.config: {fault['msg']}") from None
        controller = build_controller(config, self.drafters, allow_lossy=section.allow_lossy)
        controller.load_state_dict(dict(section.state))
        return controller

    def rows(self) -> list[int | None]:
        """The trace's row of each submission (None: it emitted no token)."""
        where = {int(number): row for row, number in enumerate(self.trace.requests.request_id.tolist())}
        return [where.get(one.request_id) if one.num_output_tokens else None for one in self.facts.submissions]


PHASES = ("draft", "plan", "verify", "host", "switch", "prefill")


def seconds_of(row: np.void) -> StepSeconds:
    """The measured seconds of a step, from its record."""
    return StepSeconds(**{phase: float(row[f"{phase}_seconds"]) for phase in PHASES})


def as_request(one: Submission, limit: int | None = None) -> Request:
    """A submission as the scheduler takes it.

    limit  output tokens after which it ends (None: as in the run; one that was cut goes on until it is cut again)
    """
    if limit is None:
        limit = one.num_output_tokens if one.end == "finished" else one.limit
    return Request(
        one.sequence, one.sequence, one.request_id, one.domain, one.num_prompt_tokens, limit,
        one.end == "finished" and one.num_output_tokens < one.limit, one.arrived_at,
    )  # fmt: skip


def _cost(folder: Path, facts: RunFile) -> CostTable:
    table = CostTable.open(folder / COST_FOLDER, facts.cost.extrapolate)
    if table.meta.cells_sha256 != facts.cost.cells_sha256:
        found, said = table.meta.cells_sha256, facts.cost.cells_sha256
        raise InputError(f"{folder / COST_FOLDER}: cells_sha256 is {found}, run.json says {said}")
    return table.with_draft_costs(facts.cost.draft_costs) if facts.cost.draft_costs else table


def _check_consistent(folder: Path, facts: RunFile, trace: Trace) -> None:
    """Raise InputError where run.json and the trace contradict each other."""
    where = f"{folder}/run.json"
    names = [spec.name for spec in trace.drafters]
    if facts.drafters != names:
        raise InputError(f"{where}: drafters are {facts.drafters}, the trace has {names}")
    if [one.sequence for one in facts.submissions] != list(range(len(facts.submissions))):
        raise InputError(f"{where}: submissions: sequence must count from 0")
    if facts.num_steps and not facts.submissions:
        raise InputError(f"{where}: submissions: there are none, but {facts.num_steps} steps")
    tokens = dict(zip(trace.requests.request_id.tolist(), trace.requests.num_output_tokens.tolist(), strict=True))
    for one in facts.submissions:
        if one.num_output_tokens and tokens.get(one.request_id) != one.num_output_tokens:
            raise InputError(
                f"{where}: request {one.request_id} emitted {one.num_output_tokens} tokens, "
                f"the trace says {tokens.get(one.request_id, 'nothing')}"
            )
    known = len(facts.submissions)
    for gone in facts.cancellations:
        if gone.sequence >= known:
            raise InputError(f"{where}: cancellations: no submission {gone.sequence}")
