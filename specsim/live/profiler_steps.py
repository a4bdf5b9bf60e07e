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

STEPS = {"cpu": 9, "cuda": 64}
"""Steps behind a median: what is looked for is microseconds beside a pass on CUDA, and passes are slow on a CPU."""

WARM_UP_STEPS = {"cpu": 2, "cuda": 8}

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
        self._steps, self._warm_up = STEPS[setup.device.type], WARM_UP_STEPS[setup.device.type]
        num_slots = len(setup.state.history)
        room = setup.max_model_len - context
        output = min((self._warm_up + self._steps) * (depth + 1), room)
        drafter = SyntheticDrafter(STAND_IN, mean_acceptance_length=min(MEAN_ACCEPTANCE, depth + 1.0), max_depth=depth)
        config = SyntheticConfig(
            "profile", (drafter,), num_slots, num_prompt_tokens=(context, context), num_output_tokens=(output, output)
        )
        self._recording = Recording(SyntheticTrace(config), setup)

    def cells(self, batch: int) -> list[Cell]:
        """Host and plan cells at a batch.

        Host is the plain step's. What a speculative step takes more, on the host or to plan, is charged where
        something is drafted: to plan. That difference is of two steps by their own clocks, so that no error of the
        table's passes, which are longer than it a hundred times, is taken for planning.
        """
        plain, speculative = self._steps_of(batch, "autoregressive"), self._steps_of(batch, "dcut")
        host = plain.beside_the_table if self._setup.device.type == "cuda" else plain.beside_the_pass
        more = statistics.median(speculative.beside_the_pass) - statistics.median(plain.beside_the_pass)
        return [
            Cell("host", max(0.0, statistics.median(host)), batch, num_samples=len(host)),
            Cell("plan", max(0.0, more), batch, num_samples=len(speculative.beside_the_pass)),
        ]

    def _steps_of(self, batch: int, policy: str) -> Watch:
        """Steps of an engine under a policy, the warm-up forgotten."""
        setup, recording = self._setup, self._recording
        drafter = ReplayedDrafter(recording, 0, setup)
        most = max(LEAST_STEP_TOKENS, 2 * batch * (self._depth + 1))
        config = EngineConfig(batch, most, setup.block_size, max_model_len=setup.max_model_len)
        controller = build_controller(policy, (drafter.spec,), live=True)
        acceptor = ReplayedAcceptor(recording, TargetAcceptor(setup.ops))
        watch = Watch(batch, self._table)
        engine = Engine(setup, [drafter], controller, self._table, config, acceptor=acceptor, observers=[watch])
        load = ClosedLoad(engine, recording, cycle(range(len(recording.trace))))
        load.start(batch)
        while len(watch.beside_the_pass) < self._warm_up + self._steps and engine.step(settled=False):
            pass
        engine.observers.remove(watch)  # of a step more it may be told later
        load.stop()
        watch.forget(self._warm_up)
        return watch


class Watch:
    """Collects what full steps without prompts take beyond drafting and the pass, seconds.

    batch   requests of a full step
    table   prices passes

    beside_the_pass     the step's own clock says what the pass took. On CUDA that holds more than the pass, since the
                        device waits until the host has launched the graph
    beside_the_table    the table says it
    """

    def __init__(self, batch: int, table: CostTable) -> None:
        self._batch, self._table = batch, table
        self.beside_the_pass: list[float] = []
        self.beside_the_table: list[float] = []

    def forget(self, count: int) -> None:
        """Leave the first steps out, where there are more."""
        for taken in (self.beside_the_pass, self.beside_the_table):
            taken[:] = taken[count:] or taken

    def on_step(self, row: np.void, step: Step, emission: Emission | None) -> None:
        """See `Observer.on_step`."""
        if int(row["batch"]) != self._batch or row["prefill_tokens"]:
            return
        assert step.context is not None
        drafter, verified = None if step.draft is None else step.draft.drafter, int(row["num_verified"])
        context = step.context.mean_context
        priced = self._table.phases(drafter, self._batch, step.order.depth, verified, context).verify
        undrafted = sum(float(row[name]) for name in SECONDS) - float(row["draft_seconds"])
        self.beside_the_pass.append(undrafted - float(row["verify_seconds"]))
        self.beside_the_table.append(undrafted - priced)

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
