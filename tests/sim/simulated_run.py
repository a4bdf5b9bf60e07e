"""Run folders like those of a live engine, made by a simulation: no torch, and every second is the cost table's."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import simpy

from specsim.cost.examples import staircase_table
from specsim.cost.files import read_table
from specsim.policies.build import build_controller
from specsim.serving import EngineConfig, Scheduler
from specsim.serving.run_file import (
    COST_FOLDER,
    ControllerSection,
    CostSection,
    EngineSection,
    RunFile,
    SamplingSection,
    Submission,
    read_run_file,
    write_run_file,
)
from specsim.serving.slots import Request
from specsim.serving.streams import policy_rng
from specsim.serving.tally import Tally
from specsim.sim.events import ARRIVAL, Timed
from specsim.sim.replay import Replay
from specsim.sim.replica import Replica
from specsim.telemetry import FINISH_REASONS
from specsim.trace import RecordedBlocks, RequestRow, Trace, TraceWriter
from specsim.trace.steps import steps_table
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace
from tests.trace.traces import reseal

DEPTH = 5
DRAFTERS = (
    SyntheticDrafter("strong", mean_acceptance_length=3.0, max_depth=DEPTH),
    SyntheticDrafter("weak", mean_acceptance_length=1.3, max_depth=DEPTH),
)
TRACE = SyntheticTrace(SyntheticConfig("prompts", DRAFTERS, num_requests=8, num_output_tokens=(10, 30), seed=4))
TABLE = staircase_table(
    {4: 0.010, 8: 0.011, 16: 0.014, 32: 0.022, 64: 0.04}, (1, 2, 4), dict.fromkeys(("strong", "weak"), 0.001), DEPTH
)
LIMITS = EngineConfig(max_num_seqs=3, max_num_batched_tokens=200, block_size=8, num_kv_blocks=120, max_model_len=1024)


class Watched(Replica):
    """Remembers every block it visits."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.visits, self.num_started, self.seen_before = [], 0, {}

    def submit(self, request):
        self.seen_before[request.sequence] = self.num_started
        super().submit(request)

    def start(self):
        self.num_started += 1
        step = super().start()
        if step.draft is not None:
            arms = np.full(len(step.slots), step.order.arm) if step.order.arms is None else step.order.arms
            for i, slot in enumerate(step.slots.tolist()):
                count = int(step.draft.num_drafts[i])
                scores = {name: values[i, :count].tolist() for name, values in step.draft.scores.items()}
                position, sequence = int(self.scheduler.slots.emitted[slot]), self.scheduler.slots.sequences[slot]
                self.visits.append(
                    (
                        sequence,
                        int(arms[i]),
                        position,
                        count,
                        int(step.num_verify[i]),
                        int(step.num_accepted[i]),
                        scores,
                    )
                )
        return step


def write_run(
    folder: Path, spec: str = "dcut@ucb1", gap: float = 0.02, seed: int = 5, closed_loop: int | None = None
) -> Path:
    """Simulate the trace's requests in order, one every `gap` seconds, and write what a recorder would.

    spec         the controller's text, no policy that stops drafting
    closed_loop  clients that submit one after the other instead
    """
    controller = build_controller(spec, TRACE.drafters)
    state = controller.state_dict()
    env = simpy.Environment()
    requests, rows = [], TRACE.requests
    for index in range(len(TRACE)):
        tokens = int(rows.num_output_tokens[index])
        requests.append(
            Request(index, index, 700 + index, "chat", int(rows.num_prompt_tokens[index]), tokens, True, gap * index)
        )
    replica = Watched(
        env, 0, Scheduler(LIMITS, LIMITS.max_num_seqs, controller.max_depth), Replay(TRACE, LIMITS.max_num_seqs, 64),
        TABLE.fresh(), controller, Tally(TRACE.drafters, record_steps=True), policy_rng(seed, 0),
        lambda request: follow(),
    )  # fmt: skip
    owed = requests[closed_loop:] if closed_loop else []

    def follow():
        if owed:
            owed[0].arrived_at = env.now
            replica.submit(owed.pop(0))

    env.process(replica.process())
    for request in requests[:closed_loop]:
        request.arrived_at = 0.0 if closed_loop else request.arrived_at
        Timed(env, request.arrived_at, ARRIVAL).callbacks.append(partial(_arrive, replica, request))
    env.run()
    _write(folder, replica, requests, controller, state, seed)
    edit_run(folder, closed_loop=closed_loop)
    return folder


def _arrive(replica, request, _):
    replica.submit(request)


def _write(folder, replica, requests, controller, state, seed):
    manifest = TRACE.manifest.model_copy(update={"kind": "trajectory", "files": {}})
    writer = TraceWriter(folder, manifest)
    for request in requests:
        own = [visit for visit in replica.visits if visit[0] == request.sequence]
        reason = FINISH_REASONS[0]
        row = RequestRow(
            request.request_id, "chat", request.num_prompt_tokens, request.limit, reason, request.arrived_at
        )
        writer.add(row, {spec.name: _blocks(own, arm, request.limit) for arm, spec in enumerate(TRACE.drafters)})
    steps = replica.tally.steps.table()
    writer.finish(steps)
    TABLE.save(folder / COST_FOLDER)
    done = {int(row["request_id"]): row for row in replica.tally.requests.table()}
    facts = RunFile(
        complete=True,
        controller=ControllerSection(
            text=str(controller.config),
            config=controller.config.model_dump(mode="json"),
            allow_lossy=False,
            state=state,
        ),
        cost=CostSection(name=TABLE.name, cells_sha256="0" * 64),
        engine=EngineSection(**{name: getattr(LIMITS, name) for name in EngineSection.model_fields}),
        seed=seed,
        model="synthetic",
        drafters=[spec.name for spec in TRACE.drafters],
        acceptance="",
        device="none",
        dtype="none",
        versions={},
        num_steps=len(steps),
        submissions=[_submission(request, replica, done[request.request_id]) for request in requests],
    )
    write_run_file(folder, facts)
    edit_run(folder, cost={"name": TABLE.name, "cells_sha256": _cells(folder)})


def _cells(folder):
    return read_table(folder / COST_FOLDER)[0].cells_sha256


def _blocks(visits, arm, tokens):
    own = [visit for visit in visits if visit[1] == arm]
    return RecordedBlocks(
        num_drafts=[visit[3] for visit in own],
        num_accepted=[visit[5] for visit in own],
        num_verified=[min(visit[4], tokens - visit[2]) for visit in own],
        confidence=[visit[6]["drawn_prob"] for visit in own],
        confidence_max=[visit[6]["max_prob"] for visit in own],
        position=[visit[2] for visit in own],
    )


def _submission(request, replica, row):
    return Submission(
        sequence=request.sequence,
        request_id=request.request_id,
        domain="chat",
        num_prompt_tokens=request.num_prompt_tokens,
        limit=request.limit + 1,
        before_step=replica.seen_before[request.sequence],
        arrived_at=request.arrived_at,
        sampling=SamplingSection(temperature=0.0, top_k=0, top_p=1.0, seed=0),
        end="finished",
        num_output_tokens=request.limit,
        first_token_at=float(row["first_token_at"]),
        ended_at=float(row["finished_at"]),
    )


def edit_steps(folder: Path, change) -> None:
    """Write steps.parquet again after `change(records)`, and its hash, as someone who covers up would."""
    steps = Trace.open(folder).steps()
    change(steps)
    pq.write_table(steps_table(steps), folder / "steps.parquet", write_page_checksum=True)
    reseal(folder)


def edit_run(folder: Path, **changes) -> None:
    """Write run.json again with other values for some keys."""
    facts = read_run_file(folder).model_dump(mode="json") | changes
    write_run_file(folder, RunFile.model_validate(facts))


def edit_submission(folder: Path, index: int, **changes) -> None:
    """Write run.json again with other values for some keys of one submission."""
    facts = read_run_file(folder).model_dump(mode="json")["submissions"]
    facts[index] |= changes
    edit_run(folder, submissions=facts)
