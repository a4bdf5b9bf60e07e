"""What a real step takes beyond the parts that are timed alone: the host's share, and planning."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

import numpy as np

from specsim.cost import Cell, CostTable
from specsim.cost.cells import Phase
from specsim.errors import InputError
from specsim.live.acceptor import TargetAcceptor
from specsim.live.commit import Emission
from specsim.live.engine import Engine, LiveSetup
from specsim.live.profiler_cells import PROMPT_TOKENS
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

WAVES = 9
"""Times that requests end together and others join, behind a median."""

STEPS_OF_A_WAVE = 4
"""Steps before each of them that nobody ends or joins in."""

SHARE_THAT_JOINS = 16
"""Of so many requests, one ends and one joins in the larger waves, and two at least."""

HIDING_SECONDS = 2e-3
"""What the drafting of a speculative step takes at least where the host's work beside it is to be hidden."""

SECONDS = tuple(name for name in STEP_DTYPE.names or () if name.endswith("_seconds"))

STAND_IN = "replayed"

MEAN_ACCEPTANCE = 2.0
"""Tokens a step of the made-up acceptance under which steps are timed."""


def tokens_of_steps(device: str, depth: int) -> int:
    """Output tokens of a request that is to be there in all steps of a policy, twice over.

    device  its type, cpu or cuda
    depth   most drafts a request
    """
    return 2 * (WARM_UP_STEPS[device] + STEPS[device]) * (depth + 1)


class StepBench:
    """Runs an engine for a few steps, with made-up acceptance and prompts of a given length.

    setup       the device side, no request of which runs
    table       what passes take
    context     tokens of a prompt; where memory is short, fewer, so that all requests run at once
    depth       most drafts a request

    Raises      InputError where memory does not hold a few tokens of each request

    measures_changes    whether steps whose requests change are measured: on a CPU passes vary by more than these take
    """

    def __init__(self, setup: LiveSetup, table: CostTable, context: int, depth: int) -> None:
        self._setup, self._depth = setup, depth
        self._table = _with_free_drafting(table, depth)
        device = setup.device.type
        self.measures_changes = device == "cuda"
        self._steps, self._warm_up = STEPS[device], WARM_UP_STEPS[device]
        num_slots = len(setup.state.history)
        # Were one preempted, the batch might never be full again, and a full one is what is waited for.
        each = setup.pool.num_blocks // num_slots * setup.block_size
        most = min(setup.max_model_len, each - depth - 1)
        if most < 2:
            raise InputError(
                f"the KV cache holds {each} tokens of each of {num_slots} requests, and steps {depth} drafts deep need "
                f"{depth + 3}: give fewer requests or shallower drafts"
            )
        context = min(context, most // 2)
        output = min(tokens_of_steps(device, depth), most - context)
        drafter = SyntheticDrafter(STAND_IN, mean_acceptance_length=min(MEAN_ACCEPTANCE, depth + 1.0), max_depth=depth)
        config = SyntheticConfig(
            "profile", (drafter,), num_slots, num_prompt_tokens=(context, context), num_output_tokens=(output, output)
        )
        self._recording = Recording(SyntheticTrace(config), setup)

    def cells(self, batch: int) -> list[Cell]:
        """Host and plan cells at a batch, and on CUDA those of steps whose requests change.

        Host is the plain step's. What a speculative step takes more, on the host or to plan, is charged where
        something is drafted: to plan. That difference is of two steps by their own clocks, so that no error of the
        table's passes, which are longer than it a hundred times, is taken for planning. On CUDA it is taken where
        drafting is long enough for the host to work beside it, and what shorter drafting does not hide is a cell too.
        """
        with self._running(batch, "autoregressive") as run:
            plain = run.steady(self._warm_up, self._steps)
            found = self._changes("late", batch, run, plain) if self.measures_changes else []
            for size in sorted({1, min(batch, max(2, batch // SHARE_THAT_JOINS))}) if self.measures_changes else ():
                found.append(self._join(batch, size, run))
        with self._running(batch, "dcut") as run:
            speculative = run.steady(self._warm_up, self._steps)
        if self.measures_changes:
            short = speculative
            with self._running(batch, "dcut", self._long_drafting(batch)) as run:
                speculative = run.steady(self._warm_up, self._steps)
                found += self._changes("late_draft", batch, run, speculative)
            hidden = statistics.median(short.beside_the_pass) - statistics.median(speculative.beside_the_pass)
            found.append(Cell("hidden", max(0.0, hidden), batch, num_samples=len(short.beside_the_pass)))
        host = plain.beside_the_table if self._setup.device.type == "cuda" else plain.beside_the_pass
        more = statistics.median(speculative.beside_the_pass) - statistics.median(plain.beside_the_pass)
        return [
            Cell("host", max(0.0, statistics.median(host)), batch, num_samples=len(host)),
            Cell("plan", max(0.0, more), batch, num_samples=len(speculative.beside_the_pass)),
            *found,
        ]

    def _changes(self, phase: Phase, batch: int, run: Running, steady: Watch) -> list[Cell]:
        """What the same steps take longer when nothing is launched ahead."""
        run.engine.launch_ahead(False)
        alone = run.steady(self._warm_up, self._steps)
        more = statistics.median(alone.with_drafting) - statistics.median(steady.with_drafting)
        return [Cell(phase, max(0.0, more), batch, num_samples=len(alone.with_drafting))]

    def _join(self, batch: int, size: int, run: Running) -> Cell:
        """What requests that join take longer than their prompts, nothing being launched ahead."""
        taken = [seconds - self._table.prefill_seconds(tokens, 0.0) for seconds, tokens in run.waves(size, WAVES)]
        return Cell("join", max(0.0, statistics.median(taken)), batch, tokens=size, num_samples=len(taken))

    def _long_drafting(self, batch: int) -> str:
        """As many of the target's layers as take long enough for the host to do its work beside them."""
        layers = self._setup.target.num_layers
        spec = self._recording.trace.drafters[0]
        whole = self._table.phases(spec, batch, self._depth, batch * self._depth, 0.0).verify
        return f"layers:{min(layers, max(1, math.ceil(layers * HIDING_SECONDS / max(whole, 1e-9))))}"

    @contextmanager
    def _running(self, batch: int, policy: str, drafting: str = "free") -> Iterator[Running]:
        """An engine under a policy, in a closed loop of so many requests."""
        setup, recording = self._setup, self._recording
        drafter = ReplayedDrafter(recording, 0, setup, drafting)
        most = max(LEAST_STEP_TOKENS, 2 * batch * (self._depth + 1))
        config = EngineConfig(batch, most, setup.block_size, max_model_len=setup.max_model_len)
        controller = build_controller(policy, (drafter.spec,), live=True)
        acceptor = ReplayedAcceptor(recording, TargetAcceptor(setup.ops))
        engine = Engine(setup, [drafter], controller, self._table, config, acceptor=acceptor)
        load = ClosedLoad(engine, recording, cycle(range(len(recording.trace))))
        load.start(batch)
        try:
            yield Running(engine, load, batch, self._table)
        finally:
            load.stop()


class Running:
    """An engine that runs, and takes the steps that are asked for.

    engine  with its closed loop
    load    that loop
    batch   requests of a full step
    table   prices passes
    """

    def __init__(self, engine: Engine, load: ClosedLoad, batch: int, table: CostTable) -> None:
        self.engine, self._load, self._batch, self._table = engine, load, batch, table

    def steady(self, warm_up: int, steps: int) -> Watch:
        """Full steps without prompts, the warm-up forgotten; fewer where requests end too soon."""
        watch = Watch(self._batch, self._table)
        self.engine.observers.append(watch)
        while len(watch.beside_the_pass) < warm_up + steps and self.engine.step(settled=False):
            pass
        self.engine.observers.remove(watch)  # of a step more it may be told later
        watch.forget(warm_up)
        return watch

    def waves(self, size: int, count: int) -> list[tuple[float, int]]:
        """Let requests end together, again and again, and as many short ones join; the policy must draft nothing.

        size     how many at once
        count    how often
        returns  each time, seconds that the two steps after the end took longer than the ones before it, and the
                 prompt tokens that were computed in them
        """
        return [self._wave(size) for _ in range(count)]

    def _wave(self, size: int) -> tuple[float, int]:
        engine, scheduler = self.engine, self.engine.scheduler
        while scheduler.prefilling or len(scheduler.decoding) < self._batch:  # not the end of a wave: of the run
            engine.step(settled=False)
        for _ in range(STEPS_OF_A_WAVE):
            engine.step(settled=False)
        state, leaving = scheduler.slots, scheduler.decoding[:size]
        state.limit[leaving] = state.emitted[leaving] + 1
        with self._load.short_prompts(PROMPT_TOKENS[0]):
            for _ in range(3):  # the last that they are in, that of the prompts, and the first of all
                engine.step(settled=False)
        engine.settle()
        assert engine.tally.steps is not None
        rows = engine.tally.steps.table()[-STEPS_OF_A_WAVE - 3 :]
        seconds = sum(rows[name] for name in SECONDS)
        assert isinstance(seconds, np.ndarray)
        usual = statistics.median(seconds[1:-2].tolist())
        return float(seconds[-2:].sum()) - 2.0 * usual, int(rows["prefill_tokens"][-2:].sum())


class Watch:
    """Collects what full steps without prompts take beyond drafting and the pass, seconds.

    batch   requests of a full step
    table   prices passes

    beside_the_pass     the step's own clock says what the pass took. On CUDA that holds more than the pass, since the
                        device waits until the host has launched the graph
    beside_the_table    the table says it
    with_drafting       the table says it, and drafting is counted in
    """

    def __init__(self, batch: int, table: CostTable) -> None:
        self._batch, self._table = batch, table
        self.beside_the_pass: list[float] = []
        self.beside_the_table: list[float] = []
        self.with_drafting: list[float] = []

    def forget(self, count: int) -> None:
        """Leave the first steps out, where there are more."""
        for taken in (self.beside_the_pass, self.beside_the_table, self.with_drafting):
            taken[:] = taken[count:] or taken

    def on_step(self, row: np.void, step: Step, emission: Emission | None) -> None:
        """See `Observer.on_step`."""
        if int(row["batch"]) != self._batch or row["prefill_tokens"]:
            return
        assert step.context is not None
        drafter, verified = None if step.draft is None else step.draft.drafter, int(row["num_verified"])
        context = step.context.mean_context
        priced = self._table.phases(drafter, self._batch, step.order.depth, verified, context).verify
        whole = sum(float(row[name]) for name in SECONDS)
        undrafted = whole - float(row["draft_seconds"])
        self.beside_the_pass.append(undrafted - float(row["verify_seconds"]))
        self.beside_the_table.append(undrafted - priced)
        self.with_drafting.append(whole - priced)

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
