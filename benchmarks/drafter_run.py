"""Runs of the live engine with trained drafters, in a closed loop of real prompts: what the drafter scripts share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from drafter_world import SEED, World
from replay_run import full_steps, step_seconds

from specsim import metrics
from specsim.cost import CostTable
from specsim.live.drafters.batch import LiveDrafter
from specsim.live.drafters.build_live import build_live_drafter
from specsim.live.engine import Engine, LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.requests import LiveRequest
from specsim.live.sampling import SamplingParams
from specsim.live.session_drive import last_commit
from specsim.live.trajectory import TrajectoryRecorder
from specsim.policies.build import build_controller
from specsim.sim.rerun import Rerun
from specsim.sim.rerun_run import LiveRun

DCUT = "dcut:ratios=all,numerator=bonus"

PHASES = ("draft", "plan", "verify", "host", "switch", "prefill")

LONGEST_FILL = 200
"""Steps after which a batch is not waited for any longer to be full and without prompts to compute."""

PROMPT_ROOM = 1024
"""Tokens of prompts that a captured pass holds beside the deepest step: passes of more are eager, and take long."""

REHEARSED = 48
"""Steps under a policy before it is measured: what it first needs then, such as a graph of another depth, is made."""

SLOW = 5.0
"""A step that takes this many times the median did something else besides, such as capturing a graph."""


@dataclass(frozen=True)
class Device:
    """A setup and the drafters built on it."""

    world: World
    setup: LiveSetup
    drafters: dict[str, LiveDrafter]

    def arms(self, *names: str) -> Arms:
        """Some of the drafters, as the arms of a controller."""
        return Arms(self.world, self.setup, [self.drafters[name] for name in names])


@dataclass(frozen=True)
class Arms:
    """The engines of some drafters, one after the other."""

    world: World
    setup: LiveSetup
    drafters: list[LiveDrafter]

    def engine(self, policy: str, batch: int, table: CostTable) -> tuple[Engine, ClosedLoop]:
        """An engine under a policy, and its closed loop of requests, started."""
        specs = [drafter.spec for drafter in self.drafters]
        controller = build_controller(policy, specs, live=True)
        config = self.world.config(batch)
        engine = Engine(self.setup, self.drafters, controller, table, config, EngineOptions(seed=SEED))
        loop = ClosedLoop(engine, self.world)
        loop.start(batch)
        return engine, loop

    def capture(self, batch: int, table: CostTable, drafting: bool = True) -> None:
        """Capture, before anything is timed, the graphs of full batches: the target's, and what drafting needs.

        drafting  whether anything will be drafted
        """
        scale, jobs = self.world.scale, self.world.jobs
        if self.setup.runner.buckets:
            longest = max(len(job.token_ids) for job in jobs)  # a prompt is computed beside what others verify
            self.setup.runner.capture(batch, batch * (scale.depth + 1) + longest)
        for drafter in self.drafters if drafting else ():
            alone = Arms(self.world, self.setup, [drafter])
            policy = f"fixed_depth:depth={drafter.spec.max_depth}"
            engine, loop = alone.engine(policy, batch, table)
            try:
                self._warmed_up(engine, batch)
            finally:
                loop.stop()
            for job in jobs[: scale.warm_up]:  # a drafter reads prompts of many lengths
                engine.submit(job.token_ids, SamplingParams(max_tokens=4))
            engine.run()

    def rehearse(self, policy: str, batch: int, table: CostTable) -> None:
        """Take steps under a policy that nobody counts."""
        engine, loop = self.engine(policy, batch, table)
        try:
            self._warmed_up(engine, batch)
            for _ in range(REHEARSED):
                engine.step(settled=False)
        finally:
            loop.stop()  # or the next engine would be refused the slots

    def measure(self, policy: str, batch: int, table: CostTable, folder: Path, seconds: float) -> Measured:
        """Serve requests under a policy, recorded.

        folder   the recording's
        seconds  after which the run ends, whatever has finished
        """
        engine, loop = self.engine(policy, batch, table)
        deadline = time.perf_counter() + seconds
        try:
            with TrajectoryRecorder(folder, engine, closed_loop=batch):
                first = self._warmed_up(engine, batch)
                goal = loop.num_ended + self.world.scale.num_requests(batch)
                while loop.num_ended < goal and time.perf_counter() < deadline:
                    engine.step(settled=False)
                last = Mark.of(engine)
            ended = [request for request in loop.requests if request.status == "finished"]
            tokens_of = by_domain(engine, loop)
        finally:
            loop.stop()
        assert engine.tally.steps is not None
        rows = engine.tally.steps.table()[first.step : last.step]
        cell = summary(policy, self.drafters, batch, rows, first, last) | {"finished": len(ended)}
        cell["acceptance_by_domain"] = tokens_of
        cell["acceptance_error"] = acceptance_error(engine)
        outputs = {request.sequence: request.token_ids for request in ended}
        return Measured(cell, folder, slice(first.step, last.step), outputs)

    def _warmed_up(self, engine: Engine, batch: int) -> Mark:
        """Take the steps that nobody counts."""
        for _ in range(LONGEST_FILL):
            if len(engine.scheduler.decoding) >= batch and not engine.scheduler.prefilling:
                break
            engine.step(settled=False)
        for _ in range(self.world.scale.warm_up):
            engine.step(settled=False)
        return Mark.of(engine)


@dataclass
class Measured:
    """A run that is over.

    cell     what was measured
    folder   its recording
    counted  the steps that count
    outputs  tokens of each finished request, by its number
    """

    cell: dict[str, Any]
    folder: Path
    counted: slice
    outputs: dict[int, list[int]]

    def take_again(self, deadline: float) -> dict[str, Any]:
        """Whether the simulator's replica decides as the run did, and what the cost table says of the same steps.

        deadline  instant, of time.perf_counter, at which it ends unfinished
        """
        run = LiveRun.open(self.folder)
        rerun, same = Rerun(run), 0
        measured = predicted = 0.0
        for step in rerun.steps():
            same += 1
            if self.counted.start <= step.index < self.counted.stop:
                measured += step.seconds.total
                predicted += step.table_seconds.total
            if time.perf_counter() > deadline:
                break
        difference = None if rerun.difference is None else str(rerun.difference)
        complete = same == len(run.steps)
        return {
            "steps": len(run.steps),
            "equal_steps": same,
            "difference": difference,
            "complete": complete,
            "predicted_over_measured_seconds": round(predicted / measured, 4) if measured else None,
            "predicted_tokens_per_second": round(self.cell["tokens"] / predicted, 2) if complete else None,
        }


@dataclass(frozen=True)
class Mark:
    """Where a run is: its steps, its tokens, its clock."""

    step: int
    tokens: int
    at: float

    @classmethod
    def of(cls, engine: Engine) -> Mark:
        """Now, everyone told of every step."""
        engine.settle()
        assert engine.tally.steps is not None
        totals = engine.tally.totals
        return cls(len(engine.tally.steps), totals.num_first + totals.num_emitted, last_commit(engine))


@dataclass
class ClosedLoop:
    """Keeps as many requests in an engine as clients: each submits its next when its last one has ended.

    engine     where
    world      whose prompts, in turns, without end
    requests   those submitted so far
    num_ended  those that have ended
    """

    engine: Engine
    world: World
    requests: list[LiveRequest] = field(default_factory=list)
    num_ended: int = 0

    def start(self, concurrency: int) -> None:
        """Submit the first requests."""
        self.engine.observers.append(self)
        for _ in range(concurrency):
            self._submit()

    def stop(self) -> None:
        """End every request, so that another engine may have the setup."""
        self.engine.settle()
        self.engine.observers.remove(self)
        for request in self.requests:
            self.engine.cancel(request)
        self.engine.run()

    def on_step(self, row: np.void, step: Any, emission: Any) -> None:
        """See `Observer.on_step`."""

    def on_request(self, request: LiveRequest) -> None:
        """See `Observer.on_request`."""
        self.num_ended += 1
        self._submit()

    def _submit(self) -> None:
        number = len(self.requests)
        job = self.world.jobs[number % len(self.world.jobs)]
        params = SamplingParams(max_tokens=self.world.limit(number))
        self.requests.append(self.engine.submit(job.token_ids, params, domain=job.prompt.domain))


def open_device(world: World, names: Sequence[str]) -> Device:
    """The device side of the engines of all batches.

    names   of the drafters that may draft there; heads let every pass keep hidden states, which takes time
    """
    scale = world.scale
    options = EngineOptions(seed=SEED, kv_memory=0.3)
    most = scale.batches[-1]
    setup = LiveSetup(world.target, world.config(most), scale.depth, options, world.buckets(most, PROMPT_ROOM))
    return Device(world, setup, {name: build_live_drafter(world.names[name], setup, scale.depth) for name in names})


def summary(
    policy: str, drafters: Sequence[LiveDrafter], batch: int, rows: np.ndarray, first: Mark, last: Mark
) -> dict[str, Any]:
    """What a run's counted steps say.

    rows    their records
    first, last   where they begin and end
    """
    seconds, taken = last.at - first.at, step_seconds(rows)
    full = full_steps(rows, batch, 0)
    request_steps = max(int(rows["batch"].sum()), 1)
    names = [*(drafter.spec.name for drafter in drafters), "plain"]
    decoding = rows["arm"][rows["batch"] > 0]
    shares = {name: round(float((decoding == arm).mean()), 4) for arm, name in _arms(names)}
    return {
        "policy": policy,
        "drafters": names[:-1],
        "batch": batch,
        "steps": len(rows),
        "seconds": round(seconds, 6),
        "tokens": last.tokens - first.tokens,
        "tokens_per_second": round((last.tokens - first.tokens) / seconds, 2),
        "mean_acceptance_length": round(metrics.mean_acceptance_length(rows["num_accepted"].sum(), request_steps), 4),
        "drafted_a_request": round(float(rows["num_drafted"].sum()) / request_steps, 3),
        "verified_a_request": round(float(rows["num_verified"].sum()) / request_steps, 3),
        "arm_shares": {name: share for name, share in shares.items() if share},
        "full_steps": int(full.sum()),
        "step_ms": round(float(taken[full].mean()) * 1e3, 3) if full.any() else None,
        "phases_ms": {name: round(float(rows[f"{name}_seconds"].mean()) * 1e3, 3) for name in PHASES},
        "slow_steps": int((taken > SLOW * np.median(taken)).sum()),
    }


def by_domain(engine: Engine, loop: ClosedLoop) -> dict[str, float]:
    """Tokens a request and step, over finished requests of each domain."""
    totals: dict[str, list[int]] = {}
    for row in engine.tally.requests.table():
        own = totals.setdefault(loop.requests[int(row["request_id"])].domain, [0, 0])
        own[0] += int(row["num_output_tokens"]) - 1
        own[1] += int(row["num_steps"])
    return {name: round(tokens / steps, 4) for name, (tokens, steps) in sorted(totals.items()) if steps}


def acceptance_error(engine: Engine) -> float | None:
    """Standard error of the tokens a request and step over finished requests, as a share of them (None: of too few)."""
    rows = engine.tally.requests.table()
    tokens, steps = rows["num_output_tokens"] - 1.0, rows["num_steps"].astype(np.float64)
    if len(rows) < 2 or not tokens.sum():
        return None
    off = tokens - steps * (tokens.sum() / steps.sum())
    return round(float(np.sqrt((off**2).sum() * len(rows) / (len(rows) - 1)) / tokens.sum()), 4)


def _arms(names: list[str]) -> list[tuple[int, str]]:
    """Arm of each name in a step's record; a plain step's is -1."""
    return [(-1 if name == "plain" else arm, name) for arm, name in enumerate(names)]
