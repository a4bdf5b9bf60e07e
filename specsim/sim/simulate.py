"""Runs a workload through one or several simulated replicas."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import simpy

from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.policies.controller import Controller
from specsim.serving.engine_config import EngineConfig
from specsim.serving.scheduler import Scheduler
from specsim.serving.slots import Request
from specsim.serving.streams import policy_rng
from specsim.serving.tally import Tally
from specsim.sim.events import ARRIVAL, Signal, Timed
from specsim.sim.replay import Replay
from specsim.sim.replica import Replica
from specsim.sim.router import build_router
from specsim.sim.workload import ClosedLoop, TraceArrivals, Workload, request_order
from specsim.telemetry import FINISH_REASONS, Run
from specsim.trace import TraceLike

MOST_REPLICAS = 4096
"""Each one is kept in memory with its slots and its copy of the controller."""


def simulate(
    trace: TraceLike,
    cost: CostTable,
    controller: Controller,
    engine: EngineConfig,
    workload: Workload,
    *,
    seed: int = 0,
    num_replicas: int = 1,
    router: str = "round_robin",
    record_steps: bool = False,
) -> Run:
    """Run a workload through replicas driven by a controller; same arguments, same result, in any process.

    trace           recorded or synthetic acceptance, position-indexed
    cost            what steps take
    controller      decides; it learns, so it is changed (further replicas get copies of it as it is now)
    engine          limits of each replica
    workload        arrivals
    seed            order of requests, arrivals and the policies' draws, in independent streams
    num_replicas    replicas behind the router
    router          `round_robin` or `least_loaded`
    record_steps    keep one row an engine step

    Raises InputError where trace, table, engine and controller do not fit together.
    """
    if tuple(controller.drafters) != tuple(trace.drafters):
        raise InputError("the controller was built for other drafters than the trace has")
    if not 1 <= num_replicas <= MOST_REPLICAS:
        raise InputError(f"num_replicas is {num_replicas}; it must be from 1 to {MOST_REPLICAS:,}")
    if not len(trace.requests.request_id):
        raise InputError("the trace has no requests")
    simulation = Simulation(trace, cost, controller, engine, workload, seed, num_replicas, router, record_steps)
    return simulation.run()


class Simulation:
    """One run: the environment, the replicas, and who submits what when."""

    def __init__(
        self,
        trace: TraceLike,
        cost: CostTable,
        controller: Controller,
        engine: EngineConfig,
        workload: Workload,
        seed: int,
        num_replicas: int,
        router: str,
        record_steps: bool,
    ) -> None:
        # A copy of the table, so that the notes are this run's own.
        self.trace, self.cost, self.controller = trace, cost.fresh(), controller
        self.engine, self.workload, self.seed = engine, workload, seed
        self.env = simpy.Environment()
        self.done = Signal(self.env)
        self.router = build_router(router)
        self.tally = Tally(tuple(trace.drafters), record_steps)
        self.num_submitted = 0
        self.num_finished = 0
        self.pending: Iterator[tuple[int, float]] = iter(())  # rows and instants still to arrive
        if isinstance(workload, TraceArrivals):
            self.num_to_finish = len(trace.requests.request_id)
        else:
            self.num_to_finish = workload.num_requests
        self._order = request_order(len(trace.requests.request_id), seed)
        self.replicas = [self._replica(index, num_replicas) for index in range(num_replicas)]

    def _replica(self, index: int, num_replicas: int) -> Replica:
        num_slots = self.engine.max_num_seqs
        if isinstance(self.workload, ClosedLoop):
            num_slots = min(num_slots, self.workload.concurrency)
        else:
            num_slots = min(num_slots, self.num_to_finish)
        lookahead = self.controller.max_depth
        self.engine.check_lookahead(lookahead, num_slots)
        longest = int(self.trace.requests.num_output_tokens.max())
        if self.engine.max_tokens is not None:
            longest = min(longest, self.engine.max_tokens)
        return Replica(
            self.env,
            index,
            Scheduler(self.engine, num_slots, lookahead),
            Replay(self.trace, num_slots, longest),
            self.cost,
            self.controller if index == 0 else copy.deepcopy(self.controller),
            self.tally,
            policy_rng(self.seed, index),
            self._finished,
        )

    def run(self) -> Run:
        """Let time pass until the workload is through."""
        for replica in self.replicas:
            self.env.process(replica.process())
        if isinstance(self.workload, ClosedLoop):
            for _ in range(self.workload.concurrency):
                self._submit(next(self._order))
        else:
            self._open_loop()
        self.env.run(until=self.done)
        return self._result()

    def _open_loop(self) -> None:
        if isinstance(self.workload, TraceArrivals):
            rows, instants = self.workload.schedule(self.trace.requests.arrival_at)
            self.pending = iter(zip(rows.tolist(), instants.tolist(), strict=True))
        else:
            assert not isinstance(self.workload, ClosedLoop)
            self.pending = zip(self._order, self.workload.arrivals(self.seed).tolist(), strict=False)
        self._await_arrival()

    def _await_arrival(self) -> None:
        arrival = next(self.pending, None)
        if arrival is not None:
            index, instant = arrival
            event = Timed(self.env, max(0.0, instant - self.env.now), ARRIVAL)
            event.callbacks.append(lambda _: self._arrive(index))

    def _arrive(self, index: int) -> None:
        self._submit(index)
        self._await_arrival()

    def _submit(self, index: int) -> None:
        requests = self.trace.requests
        prompt, output = int(requests.num_prompt_tokens[index]), int(requests.num_output_tokens[index])
        most = self.engine.output_limit(prompt)
        limit = output if most is None else min(output, most)
        request = Request(
            self.num_submitted,
            index,
            int(requests.request_id[index]),
            requests.domains[int(requests.domain[index])],
            prompt,
            limit,
            limit == output and FINISH_REASONS[int(requests.finish_reason[index])] == "stop",
            self.env.now,
        )
        self.num_submitted += 1
        self.replicas[self.router.route(self.replicas)].submit(request)

    def _finished(self, request: Request) -> None:
        self.num_finished += 1
        if self.num_finished == self.num_to_finish:
            self.done.fire(ARRIVAL)
        elif isinstance(self.workload, ClosedLoop) and self.num_finished < self.num_to_finish:
            self._submit(next(self._order))

    def _result(self) -> Run:
        tally, totals = self.tally, self.tally.finish()
        totals.num_preemptions = sum(replica.scheduler.num_preemptions for replica in self.replicas)
        return Run(
            label=self.controller.label,
            drafters=tuple(self.trace.drafters),
            seed=self.seed,
            concurrency=self.workload.concurrency if isinstance(self.workload, ClosedLoop) else 0,
            duration=float(self.env.now),
            steady_at=float(self.env.now),
            steady_tokens=totals.num_emitted + totals.num_first,
            totals=totals,
            counts=tally.counts,
            drafted=tally.drafted,
            tested=tally.tested,
            arm_steps=np.array(tally.arm_steps, np.int64),
            arm_seconds=np.array(tally.arm_seconds),
            arm_tokens=np.array(tally.arm_tokens, np.int64),
            itl=tally.itl,
            requests=tally.requests.table(),
            steps=None if tally.steps is None else tally.steps.table(),
            num_kv_blocks=self.engine.num_kv_blocks or 0,
            num_replicas=len(self.replicas),
            lossy_reason=self.controller.lossy_reason,
            clairvoyant=self.controller.clairvoyant,
            notes=tuple(sorted(self.cost.notes)),
        )
