"""One engine replica: a SimPy process in which every engine step is one event."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Protocol

import numpy as np
import simpy

from specsim.core import Counterfactual, Draft, DrafterSpec, Order, Outcome, StepContext, StepCost, StepSeconds
from specsim.cost import CostTable
from specsim.policies.controller import Controller
from specsim.serving.catch_up import CatchUp
from specsim.serving.mixture import catching_up
from specsim.serving.scheduler import Scheduler
from specsim.serving.slots import Request
from specsim.serving.tally import Block, Tally, plan_hash
from specsim.sim.events import STEP_END, WAKE_UP, Signal, Timed
from specsim.sim.late import Lateness
from specsim.sim.mixed import Mixer
from specsim.sim.replay import Replay

NONE = np.zeros(0, np.int64)


@dataclass(slots=True)
class Step:
    """A step under way: planned at its start, committed at its end."""

    started_at: float
    slots: np.ndarray  # [B] int64
    order: Order
    draft: Draft | None
    num_verify: np.ndarray  # [B] int64
    num_accepted: np.ndarray  # [B] int64
    num_emitted: np.ndarray  # [B] int64
    seconds: StepSeconds
    chunks: list[tuple[int, int]]
    num_waiting: int
    counterfactual: Counterfactual | None = None


class Clock(Protocol):
    """Who knows what time it is: the environment, or the recording of a run that is taken again."""

    @property
    def now(self) -> float:
        """Seconds."""
        ...


class Replica:
    """Draft, plan, verify, accept, commit; again and again while there is work.

    env         the SimPy environment
    index       number of this replica
    scheduler   membership of its batch
    replay      what drafters propose and the target accepts
    cost        what steps take
    controller  decides; the same object that drives a GPU
    tally       where the run is counted
    rng         randomness of the controller's policies
    on_finish   called for every finished request
    """

    def __init__(
        self,
        env: simpy.Environment,
        index: int,
        scheduler: Scheduler,
        replay: Replay,
        cost: CostTable,
        controller: Controller,
        tally: Tally,
        rng: np.random.Generator,
        on_finish: Callable[[Request], None],
    ) -> None:
        self.env = env
        self.clock: Clock = env
        self.index = index
        self.scheduler = scheduler
        self.replay = replay
        self.cost = cost
        self.controller = controller
        self.tally = tally
        self.rng = rng
        self.on_finish = on_finish
        self.drafters = replay.trace.drafters
        self.step_index = 0
        self._idle: Signal | None = None
        self._context_limits = [
            min(limits) if (limits := [x for x in (spec.max_context, scheduler.config.max_model_len) if x]) else None
            for spec in replay.trace.drafters
        ]
        self._catch_up = CatchUp(len(self._context_limits), len(scheduler.slots.requests))
        self._mixer = Mixer(replay, cost, self._context_limits)
        # Where prompts cost nothing, neither does who joins: both are somebody else's.
        changes = cost.charges_changes and scheduler.config.prefill == "charged"
        self._late = Lateness(scheduler, controller, cost, self._context_limits) if changes else None
        self._members = NONE
        self._domains: tuple[str, ...] = ()
        self._requests: tuple[int, ...] = ()

    def submit(self, request: Request) -> None:
        """Queue a request and wake up if idle."""
        self.scheduler.submit(request)
        if self._idle is not None:
            self._idle.fire(WAKE_UP + self.index)

    def load(self) -> int:
        """Requests running or waiting, for the router."""
        return len(self.scheduler.running) + len(self.scheduler.waiting)

    def process(self) -> Generator[simpy.Event, None, None]:
        """The SimPy process."""
        while True:
            if not self.scheduler.has_work():
                self._idle = Signal(self.env)
                yield self._idle
                self._idle = None
            step = self.start()
            yield Timed(self.env, step.seconds.total, STEP_END + self.index)
            self.commit(step)

    def start(self) -> Step:
        """Form the batch, then draft, plan and verify: all but the commit, which the step's seconds delay."""
        scheduler = self.scheduler
        chunks = scheduler.schedule(self.clock.now)
        for slot in scheduler.admitted:
            self._admit(slot)
        if chunks and scheduler.config.prefill == "excluded":
            for slot, _ in chunks:
                self._first_token(slot)
            chunks = []
        slots = scheduler.decoding
        if not len(slots):
            return self._prefill_only(chunks)
        context = self._context(slots)
        order = self.controller.choose(context)
        extra = StepSeconds(
            host=self._late_seconds(slots, chunks, order, context.mean_context),
            switch=self._switch_seconds(order, slots),
            prefill=self._prefill_seconds(chunks, context.mean_context),
        )
        if order.depth == 0:
            return self._plain_step(order, slots, chunks, context, extra)
        return self._speculative_step(order, slots, chunks, context, extra)

    def _late_seconds(
        self, slots: np.ndarray, chunks: list[tuple[int, int]], order: Order, mean_context: float = 0.0
    ) -> float:
        if self._late is None:
            return 0.0
        drafting = None
        if order.arms is not None:
            drafting = inf  # a mixture drafts with one after the other
        elif order.depth and len(slots):
            drafting = self.cost.phases(self.drafters[order.arm], len(slots), order.depth, 0, mean_context).draft
        return self._late.seconds(slots, chunks, order, drafting)

    def _admit(self, slot: int) -> None:
        slots = self.scheduler.slots
        self.replay.admit(slot, slots.request(slot).index)
        # Where prompts are paid for, a drafter pays for them as well, when it first drafts for the request.
        excluded = self.scheduler.config.prefill == "excluded"
        self._catch_up.admit(slot, slots.to_compute[slot] + 1 if excluded else 0)

    def _context(self, slots: np.ndarray) -> StepContext:
        scheduler = self.scheduler
        if slots is not self._members:
            self._members = slots
            members = slots.tolist()
            self._domains = tuple(map(scheduler.slots.domains.__getitem__, members))
            self._requests = tuple(map(scheduler.slots.sequences.__getitem__, members))
        batch = len(slots)
        mean_context = scheduler.total_length / batch
        waiting = len(scheduler.waiting)
        price = partial(self._price, batch, mean_context)
        context = StepContext(
            self.step_index,
            self.clock.now,
            batch,
            waiting,
            mean_context,
            self.rng,
            self._domains,
            price,
            self._requests,
        )
        self.step_index += 1
        return context

    def _price(self, batch: int, mean_context: float, drafter: DrafterSpec, depth: int) -> StepCost:
        return self.cost.step_cost(drafter, batch, depth, mean_context)

    def _switch_seconds(self, order: Order, slots: np.ndarray) -> float:
        """What bringing drafters up to date costs before they draft: all of them, where all must be learned from."""
        length, arm = self.scheduler.slots.length, order.arm if order.depth else -1
        everyone = self.controller.full_information and arm >= 0
        if self.controller.mixes:
            arms = np.full(len(slots), arm) if order.arms is None else order.arms
            missed_by = self._catch_up.missed_by_request(arms, slots, length, everyone)
            return catching_up(missed_by, self.drafters, self.cost)
        missed = self._catch_up.missed(arm, slots, length)
        seconds = self.cost.switch_seconds(self.drafters[arm], missed) if missed else 0.0
        if everyone:
            missed_by = self._catch_up.missed_by_the_idle(arm, slots, length)
            seconds += catching_up(missed_by, self.drafters, self.cost)
        return seconds

    def _prefill_seconds(self, chunks: list[tuple[int, int]], context: float, alone: bool = False) -> float:
        tokens = sum(size for _, size in chunks)
        return self.cost.prefill_seconds(tokens, context, alone) if tokens else 0.0

    def _prefill_only(self, chunks: list[tuple[int, int]]) -> Step:
        computed = [self.scheduler.slots.computed[slot] for slot, _ in chunks]
        context = sum(computed) / len(computed) if computed else 0.0
        order, waiting = Order(0, 0), len(self.scheduler.waiting)
        seconds = StepSeconds(
            host=self._late_seconds(NONE, chunks, order), prefill=self._prefill_seconds(chunks, context, alone=True)
        )
        return Step(self.clock.now, NONE, order, None, NONE, NONE, NONE, seconds, chunks, waiting)

    def _plain_step(
        self, order: Order, slots: np.ndarray, chunks: list[tuple[int, int]], context: StepContext, extra: StepSeconds
    ) -> Step:
        seconds = self.cost.phases(None, context.batch, 0, 0, context.mean_context)
        seconds = replace(seconds, host=seconds.host + extra.host, switch=extra.switch, prefill=extra.prefill)
        none = np.zeros(len(slots), np.int64)
        emitted = np.ones(len(slots), np.int64)
        return Step(
            self.clock.now, slots, order, None, none, none, emitted, seconds, chunks, context.num_waiting
        )  # fmt: skip

    def _speculative_step(
        self, order: Order, slots: np.ndarray, chunks: list[tuple[int, int]], context: StepContext, extra: StepSeconds
    ) -> Step:
        state = self.scheduler.slots
        emitted = state.emitted[slots]
        drafter, more = self.drafters[order.arm], 0.0
        if order.arms is None:
            limit = self._context_limits[order.arm]
            room = None if limit is None else limit - state.length[slots]
            draft, acceptable = self.replay.draft(order.arm, slots, emitted, order.depth, room)
        else:
            mixture = self._mixer.mix(order, slots, state, context.mean_context)
            draft, acceptable, drafter, more = (
                mixture.draft, mixture.acceptable, mixture.drafter, mixture.draft_seconds
            )  # fmt: skip
        if self.controller.stops_drafting:
            assert context.price is not None
            lengths = self.controller.draft_lengths(draft, partial(context.price, self.drafters[order.arm]))
            order = replace(order, depth=max(1, int(lengths.max())))
            draft, acceptable = self.replay.draft(order.arm, slots, emitted, order.depth, lengths)
        told = np.minimum(acceptable, draft.num_drafts) if self.controller.clairvoyant else None
        draft = Draft(
            draft.drafter, draft.num_drafts, draft.scores, told, slots, state.num_steps[slots],
            emitted - 1, context.now - state.first_emit_at[slots], draft.arms,
        )  # fmt: skip
        cost = self.cost.step_cost(drafter, context.batch, order.depth, context.mean_context)
        added = extra.switch + extra.prefill + more
        if added:
            envelope = None if cost.envelope is None else cost.envelope + added
            cost = StepCost(cost.seconds + added, envelope)
        num_verify = self.controller.plan(draft, cost).num_verify
        num_accepted = np.minimum(acceptable, num_verify)
        num_emitted = np.minimum(num_accepted + 1, state.limit[slots] - emitted)
        budget = int(np.add.reduce(num_verify))
        seconds = self.cost.phases(drafter, context.batch, order.depth, budget, context.mean_context)
        if added or extra.host:
            seconds = replace(
                seconds, draft=seconds.draft + more, host=seconds.host + extra.host, switch=extra.switch,
                prefill=extra.prefill,
            )  # fmt: skip
        counterfactual = None
        if self.controller.full_information:
            counterfactual = self.replay.counterfactual(slots, emitted, num_emitted)
        return Step(
            self.clock.now, slots, order, draft, num_verify, np.minimum(num_accepted, num_emitted), num_emitted,
            seconds, chunks, context.num_waiting, counterfactual,
        )  # fmt: skip

    def commit(self, step: Step) -> None:
        """Emit the step's tokens, finish what ended, and let the controller learn."""
        slots, state, scheduler = step.slots, self.scheduler.slots, self.scheduler
        if self._late is not None:
            self._late.foresee(slots, step.chunks, step.order, step.seconds.draft)
        emitted = 0
        if len(slots):
            emitted = self._commit_decodes(step)
            self.controller.observe(self._outcome(step))
        self.tally.step(step.order, step.seconds, len(slots), emitted, scheduler.pool.used)
        if self.tally.steps is not None:
            self.tally.steps.append(self._row(step, emitted))
        for slot, size in step.chunks:
            state.computed[slot] += size
            if state.computed[slot] == state.to_compute[slot]:
                self._first_token(slot)
        if len(slots):
            done = slots[state.emitted[slots] >= state.limit[slots]]
            for slot in done.tolist():
                self._finish(slot)
        if self._late is not None and not scheduler.has_work():
            self._late.rest()

    def _commit_decodes(self, step: Step) -> int:
        slots, state = step.slots, self.scheduler.slots
        now = self.clock.now
        gaps = now - state.last_emit_at[slots]
        state.last_emit_at[slots] = now
        state.emitted[slots] += step.num_emitted
        state.length[slots] += step.num_emitted
        state.num_steps[slots] += 1
        emitted = int(np.add.reduce(step.num_emitted))
        self.scheduler.total_length += emitted
        arm, num_drafts = (-1, NONE) if step.draft is None else (step.order.arm, step.draft.num_drafts)
        block = Block(num_drafts, step.num_verify, step.num_accepted, step.num_emitted)
        if step.order.arms is None:
            self.tally.decode(arm, block, gaps)
        else:
            self.tally.decode_mixed(step.order.arms, block, gaps)
        return emitted

    def _outcome(self, step: Step) -> Outcome:
        return Outcome(
            step.order,
            step.draft,
            step.num_verify,
            step.num_accepted,
            step.num_emitted,
            step.seconds,
            self._domains,
            step.counterfactual,
            self._requests,
        )

    def _row(self, step: Step, emitted: int) -> tuple[float, ...]:
        seconds, batch = step.seconds, len(step.slots)
        drafted = 0 if step.draft is None else int(step.draft.num_drafts.sum())
        verified, accepted = int(step.num_verify.sum()), int(step.num_accepted.sum())
        # Where a request ended inside the block, what followed its last token met no accept test.
        rejected = (step.num_accepted < step.num_verify) & (step.num_emitted > step.num_accepted)
        tested = accepted + int(rejected.sum())
        return (
            step.started_at, self.index, batch, step.order.arm if step.order.depth else -1, step.order.depth, drafted,
            verified, tested, accepted, emitted, self.cost.tokens_paid(batch, batch + verified) if batch else 0,
            sum(size for _, size in step.chunks), seconds.draft, seconds.plan, seconds.verify,
            seconds.host, seconds.switch, seconds.prefill, self.scheduler.pool.used,
            batch + len(self.scheduler.prefilling), step.num_waiting, plan_hash(step.num_verify),
        )  # fmt: skip

    def _first_token(self, slot: int) -> None:
        """A prompt is complete: its last position yields a token."""
        state, now = self.scheduler.slots, self.clock.now
        request = state.request(slot)
        state.emitted[slot] += 1
        state.length[slot] += 1
        state.last_emit_at[slot] = now
        self.tally.totals.num_first += 1
        if np.isnan(request.first_token_at):
            request.first_token_at = now
        state.first_emit_at[slot] = request.first_token_at
        self.scheduler.finish_prefill(slot)
        self._catch_up.join()
        if state.emitted[slot] >= state.limit[slot]:
            self._finish(slot)

    def _finish(self, slot: int) -> None:
        request = self.scheduler.release(slot)
        self.tally.request(request, self.index, self.clock.now)
        self.on_finish(request)
