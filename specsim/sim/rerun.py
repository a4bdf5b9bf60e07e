"""A recorded live run taken again, step by step, by the simulator's own replica.

Requests become visible before the step they did, the clock and the seconds are those that were measured, and what
drafters proposed and the target accepted comes from the trajectory. Everything else is decided anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import simpy

from specsim.core import Order, StepContext, StepSeconds
from specsim.errors import InputError
from specsim.serving.scheduler import Scheduler
from specsim.serving.slots import Request
from specsim.serving.streams import policy_rng
from specsim.serving.tally import Tally
from specsim.sim.replica import Replica, Step
from specsim.sim.rerun_replay import MissingBlock, TrajectoryReplay
from specsim.sim.rerun_run import LiveRun, as_request, seconds_of
from specsim.telemetry import STEP_DTYPE

COMPARED = (
    "batch", "num_waiting", "num_running", "prefill_tokens", "arm", "depth", "num_drafted", "num_verified", "plan_hash",
    "num_tested", "num_accepted", "num_emitted", "kv_blocks_used",
)  # fmt: skip
"""Columns of a step's record that say what was decided and what came of it, in the order it is decided."""

STEP_COLUMNS = STEP_DTYPE.names or ()


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that a run did and its rerun does not.

    step      number of the engine step, from 0 (the number of steps: behind the last)
    what      a column of the steps table, or in words what else differs
    live      its value in the run
    rerun     its value in the rerun
    requests  request ids of the step's batch
    lengths   verified drafts of each of them in the rerun (empty: not come so far)
    """

    step: int
    what: str
    live: int | str
    rerun: int | str
    requests: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"step {self.step}: {self.what} was {self.live} live and is {self.rerun} in the rerun"


@dataclass(frozen=True, slots=True)
class RerunStep:
    """One step that the rerun took, equal to the recorded one.

    index          number of the engine step
    arm            index of the drafter, -1 for a plain step
    depth          drafts asked for
    budget         drafts verified
    num_verify     [B] int64, verified drafts of each request
    plan_hash      crc32 of them
    batch          requests that decoded
    num_emitted    tokens committed
    tokens_paid    tokens the cost table says were paid for
    seconds        as measured
    table_seconds  as the cost table has them (NaN where it has no price)
    """

    index: int
    arm: int
    depth: int
    budget: int
    num_verify: np.ndarray
    plan_hash: int
    batch: int
    num_emitted: int
    tokens_paid: int
    seconds: StepSeconds
    table_seconds: StepSeconds


@dataclass
class RecordedClock:
    """Tells the instant that the recording is at."""

    now: float = 0.0


@dataclass
class Rerun:
    """Takes the steps of a run again; iterate over `steps`, then ask for `difference`.

    run         the recorded run
    difference  the first difference, which ends the rerun (None: none so far)
    """

    run: LiveRun
    difference: Difference | None = None
    _cancel_before: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.replica = RecordedReplica(self.run)
        for gone in self.run.facts.cancellations:
            self._cancel_before.setdefault(gone.before_step, []).append(gone.sequence)

    def steps(self) -> Iterator[RerunStep]:
        """Every step that is equal to the recorded one, up to the first that is not."""
        pending = iter(self.run.facts.submissions)
        waiting = next(pending, None)
        for index in range(len(self.run.steps)):
            while waiting is not None and waiting.before_step <= index:
                self.replica.submit(as_request(waiting))
                waiting = next(pending, None)
            self._cancel(index)
            taken = self._take(index)
            if taken is None:
                return
            yield taken
        while waiting is not None:
            self.replica.submit(as_request(waiting))
            waiting = next(pending, None)
        self._cancel(len(self.run.steps))
        self._compare_what_is_left()

    def _cancel(self, index: int) -> None:
        for sequence in self._cancel_before.get(index, ()):
            self.replica.cancel(sequence)

    def _take(self, index: int) -> RerunStep | None:
        """One step; None and a difference where it is not the recorded one."""
        row, replica = self.run.steps[index], self.replica
        if not replica.scheduler.has_work():
            self.difference = Difference(index, "the step", f"batch {row['batch']}", "nothing to do")
            return None
        try:
            step = replica.begin(index, float(row["started_at"]))
        except MissingBlock as missing:
            self.difference = self._without_block(index, row, missing)
            return None
        except InputError as error:  # a price that the run never asked for
            self.difference = Difference(index, "the step", "taken", f"not possible ({error})")
            return None
        measured = seconds_of(row)
        table, step.seconds = step.seconds, measured
        replica.clock = RecordedClock(float(row["started_at"]) + measured.total)
        requests = tuple(replica.scheduler.slots.request(slot).request_id for slot in step.slots.tolist())
        replica.commit(step)
        again = replica.taken
        for name in COMPARED:
            if int(row[name]) != int(again[name]):
                lengths = tuple(step.num_verify.tolist())
                self.difference = Difference(index, name, int(row[name]), int(again[name]), requests, lengths)
                return None
        return RerunStep(
            index, int(again["arm"]), int(again["depth"]), int(again["num_verified"]), step.num_verify,
            int(again["plan_hash"]), int(again["batch"]), int(again["num_emitted"]), int(again["num_tokens_paid"]),
            measured, table,
        )  # fmt: skip

    def _without_block(self, index: int, row: np.void, missing: MissingBlock) -> Difference:
        """What led to a place where the run never was."""
        replica = self.replica
        asked = {"batch": replica.asked_batch, "num_waiting": len(replica.scheduler.waiting), "arm": replica.asked_arm}
        if not replica.controller.stops_drafting:
            asked["depth"] = replica.asked_depth
        for name, value in asked.items():
            if int(row[name]) != value:
                return Difference(index, name, int(row[name]), value)
        return Difference(index, "the drafts", "proposed elsewhere", f"asked of {missing}, which was not recorded")

    def _compare_what_is_left(self) -> None:
        left = [request.request_id for request in self.replica.unfinished()]
        expected = [one.request_id for one in self.run.facts.submissions if one.end == "unfinished"]
        if sorted(left) != sorted(expected):
            self.difference = Difference(
                len(self.run.steps), "requests still running at the end", _listed(expected), _listed(left)
            )


class RecordedReplica(Replica):
    """A replica whose clock, seconds and blocks are a recording's."""

    def __init__(self, run: LiveRun) -> None:
        limits, controller = run.facts.engine.limits, run.controller()
        lookahead = controller.max_depth
        super().__init__(
            simpy.Environment(),
            0,
            Scheduler(limits, limits.max_num_seqs, lookahead),
            TrajectoryReplay(run),  # type: ignore[arg-type]  # answers the same questions
            run.cost.fresh(),
            controller,
            Tally(run.drafters, record_steps=True),
            policy_rng(run.facts.seed, 0),
            lambda request: None,
        )
        self._failing = {
            one.sequence: one.failed_in_step for one in run.facts.submissions if one.failed_in_step is not None
        }
        self._prices_prompts = any(cell.phase == "prefill" for cell in run.cost.cells)
        self._index = 0
        self.asked_arm, self.asked_depth, self.asked_batch = -1, 0, 0
        self.taken: dict[str, float] = {}

    def begin(self, index: int, now: float) -> Step:
        """Take a step up to its commit.

        index  number of the engine step
        now    instant of its start, seconds
        Raises MissingBlock where drafts are asked for that the run did not make
        """
        self._index, self.clock = index, RecordedClock(now)
        step = self.start()
        failing = [row for row, slot in enumerate(step.slots.tolist()) if self._fails(slot)]
        if not failing:
            return step
        emitted = step.num_emitted.copy()
        emitted[failing] = step.num_accepted[failing]  # no token follows what was accepted
        slots, state = step.slots[failing], self.scheduler.slots
        state.limit[slots] = state.emitted[slots] + emitted[failing]  # so that the commit lets it go
        return replace(step, num_emitted=emitted)

    def cancel(self, sequence: int) -> None:
        """A request leaves before the next step."""
        for slot in self.scheduler.running:
            if self.scheduler.slots.request(slot).sequence == sequence:
                self.scheduler.release(slot)
                return
        for request in self.scheduler.waiting:
            if request.sequence == sequence:
                self.scheduler.waiting.remove(request)
                return

    def unfinished(self) -> list[Request]:
        """Requests that run or wait."""
        return [*(self.scheduler.slots.request(slot) for slot in self.scheduler.running), *self.scheduler.waiting]

    def _fails(self, slot: int) -> bool:
        return self._failing.get(self.scheduler.slots.sequences[slot]) == self._index

    def _first_token(self, slot: int) -> None:
        if self._fails(slot):
            self.scheduler.release(slot)
        else:
            super()._first_token(slot)

    def _speculative_step(
        self, order: Order, slots: np.ndarray, chunks: list[tuple[int, int]], context: StepContext, extra: StepSeconds
    ) -> Step:
        self.asked_arm, self.asked_depth, self.asked_batch = order.arm, order.depth, len(slots)
        return super()._speculative_step(order, slots, chunks, context, extra)

    def _row(self, step: Step, emitted: int) -> tuple[float, ...]:
        row = super()._row(step, emitted)
        self.taken = dict(zip(STEP_COLUMNS, row, strict=True))
        return row

    def _prefill_seconds(self, chunks: list[tuple[int, int]], context: float, alone: bool = False) -> float:
        """NaN where the table has no price: the run asked for it only before it planned, and planned with one."""
        return super()._prefill_seconds(chunks, context, alone) if self._prices_prompts else float("nan")


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"
