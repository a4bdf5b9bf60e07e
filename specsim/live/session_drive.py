"""Who submits a session's requests: a closed loop, or Poisson arrivals by wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specsim.live.engine import Engine
from specsim.live.prompts import Prompt
from specsim.live.requests import Chunk, LiveRequest
from specsim.live.sampling import SamplingParams

LONGEST_SLEEP = 0.05
"""Seconds after which a wait for the next arrival looks whether it shall end."""


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt to serve.

    prompt     as given
    token_ids  [T] int64, as the model sees it
    params     how its tokens are chosen (None: as the run's)
    index      row of the trace whose acceptance it replays (None: nothing is replayed)
    """

    prompt: Prompt
    token_ids: np.ndarray
    params: SamplingParams | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """When requests come.

    concurrency   requests under way at a time (0: arrivals wait for nobody)
    arrivals      [N] float64 seconds after the start, rising (None: a closed loop)
    """

    concurrency: int
    arrivals: np.ndarray | None = None

    @classmethod
    def poisson(cls, rate: float, num_requests: int, seed: int) -> Load:
        """Arrivals at a mean of `rate` a second, the first at 0; the same for the same seed."""
        rng = np.random.default_rng([seed, num_requests])
        gaps = rng.exponential(1.0 / rate, num_requests)
        gaps[:1] = 0.0
        return cls(0, np.cumsum(gaps))


class Drive:
    """Submits requests when they are due, and steps the engine until all have ended.

    engine     what serves them
    jobs       the requests, in their order
    params     how their tokens are chosen
    load       when they come
    on_chunk   told of new tokens as steps commit (None: nobody)

    requests   those submitted so far
    on_submit  told of each request as it is submitted
    steady     instant at which the first slot stayed empty, seconds of the engine's clock, and the tokens emitted
               until then (None: not yet)
    """

    def __init__(
        self,
        engine: Engine,
        jobs: Sequence[Job],
        params: SamplingParams,
        load: Load,
        on_chunk: Callable[[Chunk], None] | None = None,
    ) -> None:
        self.engine, self.jobs, self.params, self.load = engine, jobs, params, load
        self.on_chunk = on_chunk
        self.on_submit: Callable[[LiveRequest], None] = lambda request: None
        self.requests: list[LiveRequest] = []
        self.steady: tuple[float, int] | None = None

    def run(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Serve everything. Once `stopping` says so, what runs or waits is cancelled after the step under way."""
        start = self.engine.clock.now()
        while not stopping():
            self._submit_due(start)
            if self.engine.step(settled=False):  # told while the next step's pass runs
                continue
            if len(self.requests) == len(self.jobs):
                return
            self._wait(start)
        self.engine.settle()
        for request in self.requests:
            self.engine.cancel(request)
        self.engine.step()

    def _submit_due(self, start: float) -> None:
        scheduler = self.engine.scheduler
        while len(self.requests) < len(self.jobs):
            if self.load.arrivals is None:
                if len(scheduler.running) + len(scheduler.waiting) >= self.load.concurrency:
                    return
                self._submit(None)
                continue
            due = start + float(self.load.arrivals[len(self.requests)])
            if due > self.engine.clock.now():
                return
            self._submit(due)
        under_way = len(scheduler.running) + len(scheduler.waiting)
        if self.steady is None and under_way < len(scheduler.slots.requests):
            self.engine.settle()
            totals = self.engine.tally.totals
            self.steady = (last_commit(self.engine), totals.num_first + totals.num_emitted)

    def _submit(self, due: float | None) -> None:
        job = self.jobs[len(self.requests)]
        request = self.engine.submit(
            job.token_ids,
            job.params or self.params,
            domain=job.prompt.domain,
            on_chunk=self.on_chunk,
            want_text=True,
            index=job.index,
        )
        if due is not None:
            # It came while a step was under way; what it waited for that step's end is its latency, too.
            request.arrived_at = due
        self.requests.append(request)
        self.on_submit(request)

    def _wait(self, start: float) -> None:
        assert self.load.arrivals is not None
        due = start + float(self.load.arrivals[len(self.requests)])
        time.sleep(min(max(due - self.engine.clock.now(), 0.0), LONGEST_SLEEP))


def last_commit(engine: Engine) -> float:
    """Instant at which the engine's last step was committed, seconds of its clock; 0 before the first."""
    assert engine.tally.steps is not None
    steps = engine.tally.steps
    if not len(steps):
        return 0.0
    phases = ("draft", "plan", "verify", "host", "switch", "prefill")
    return float(steps.column("started_at")[-1]) + sum(float(steps.column(f"{name}_seconds")[-1]) for name in phases)
