"""What a real step takes beyond the parts that are timed alone: the host's share, and planning."""

from __future__ import annotations

import statistics
from itertools import cycle

import numpy as np

from specsim.cost import Cell, CostTable
from specsim.live.acceptor import TargetAcceptor
from specsim.live.commit import Emission
from specsim.live.engine import Engine, LiveSetup
from specsim.live.replayed import ClosedLoad, Recording, ReplayedAcceptor, ReplayedDrafter
from specsim.live.requests import LiveRequest
from specsim.live.step import Step
from specsim.policies.build import build_controller
from specsim.serving import EngineConfig
from specsim.telemetry import STEP_DTYPE
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace

STEPS = 9
"""Steps behind a median."""

WARM_UP_STEPS = 2

LEAST_STEP_TOKENS = 8192
"""Prompt tokens that a step may at least compute."""

SECONDS = tuple(name for name in STEP_DTYPE.names or () if name.endswith("_seconds"))

STAND_IN = "replayed"

MEAN_ACCEPTANCE = 2.0
"""Tokens a step of the made-up acceptance under which steps are timed."""


class StepBench:
    """Runs an engine for a few steps, with made-up acceptance and prompts of a given length.

    setup       the device side, no request of which runs
    table       what passes take
    context     tokens of a prompt
    depth       most drafts a request
    """

    def __init__(self, setup: LiveSetup, table: CostTable, context: int, depth: int) -> None:
        self._setup, self._depth = setup, depth
        self._table = _with_free_drafting(table, depth)
        num_slots = len(setup.state.history)
        room = setup.max_model_len - context
        output = min((WARM_UP_STEPS + STEPS) * (depth + 1), room)
        drafter = SyntheticDrafter(STAND_IN, mean_acceptance_length=min(MEAN_ACCEPTANCE, depth + 1.0), max_depth=depth)
        config = SyntheticConfig(
            "profile", (drafter,), num_slots, num_prompt_tokens=(context, context), num_output_tokens=(output, output)
        )
        self._recording = Recording(SyntheticTrace(config), setup)

    def cells(self, batch: int) -> list[Cell]:
        """Host and plan cells at a batch."""
        host, samples = self._beyond_the_pass(batch, "autoregressive")
        both, more = self._beyond_the_pass(batch, "dcut")
        return [
            Cell("host", host, batch, num_samples=samples),
            Cell("plan", max(0.0, both - host), batch, num_samples=more),
        ]

    def _beyond_the_pass(self, batch: int, policy: str) -> tuple[float, int]:
        """Median seconds of a step less its drafting and its pass, and steps behind it."""
        setup, recording = self._setup, self._recording
        drafter = ReplayedDrafter(recording, 0, setup)
        most = max(LEAST_STEP_TOKENS, 2 * batch * (self._depth + 1))
        config = EngineConfig(batch, most, setup.block_size, max_model_len=setup.max_model_len)
        controller = build_controller(policy, (drafter.spec,), live=True)
        acceptor = ReplayedAcceptor(recording, TargetAcceptor(setup.ops))
        watch = Watch(batch, self._table if setup.device.type == "cuda" else None)
        engine = Engine(setup, [drafter], controller, self._table, config, acceptor=acceptor, observers=[watch])
        load = ClosedLoad(engine, recording, cycle(range(len(recording.trace))))
        load.start(batch)
        while len(watch.seconds) < WARM_UP_STEPS + STEPS and engine.step():
            pass
        load.stop()
        counted = watch.seconds[WARM_UP_STEPS:] or watch.seconds
        return max(0.0, statistics.median(counted)), len(counted)


class Watch:
    """Collects what full steps without prompts take beyond drafting and the pass.

    On a CPU a step's own clock says what the pass took. On CUDA that phase holds more than the pass, since the device
    waits in it until the host has launched the graph; there the table says it.

    batch   requests of a full step
    table   prices the pass (None: the step's clock)
    """

    def __init__(self, batch: int, table: CostTable | None) -> None:
        self._batch, self._table = batch, table
        self.seconds: list[float] = []

    def on_step(self, row: np.void, step: Step, emission: Emission | None) -> None:
        """See `Observer.on_step`."""
        if int(row["batch"]) != self._batch or row["prefill_tokens"]:
            return
        passed = float(row["verify_seconds"])
        if self._table is not None:
            assert step.context is not None
            drafter, verified = None if step.draft is None else step.draft.drafter, int(row["num_verified"])
            context = step.context.mean_context
            passed = self._table.phases(drafter, self._batch, step.order.depth, verified, context).verify
        self.seconds.append(sum(float(row[name]) for name in SECONDS) - float(row["draft_seconds"]) - passed)

    def on_request(self, request: LiveRequest) -> None:
        """See `Observer.on_request`."""


def _with_free_drafting(table: CostTable, depth: int) -> CostTable:
    """A table of passes, where the stand-in drafts and catches up for nothing; it answers at every context."""
    context = table.ranges.context[1]
    free = [Cell("switch", 0.0, tokens=1, drafter=STAND_IN)]
    for batch in sorted(set(table.ranges.batch)):
        free.append(Cell("draft", 0.0, batch, depth=depth, context=context, drafter=STAND_IN))
    if not any(cell.phase == "prefill" for cell in table.cells):
        free.append(Cell("prefill", 0.0, tokens=1, context=context))
    return CostTable.from_cells(table.meta, [*table.cells, *free], extrapolate=True)
