"""The five verbs of one live step: draft, plan, verify, accept, commit.

It mirrors the simulated replica decision by decision, and shares with it who runs (`serving.Scheduler`), what an idle
drafter missed (`serving.CatchUp`) and what a step costs (`cost.CostTable`), so that a run's telemetry can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from specsim.core import Draft, DrafterSpec, StepContext, StepCost
from specsim.live.ahead import Ahead
from specsim.live.committer import Committer
from specsim.live.costs import DeviceCosts
from specsim.live.drafters.batch import DraftBatch, Drafted
from specsim.live.members import Membership
from specsim.live.mixing import Mixer
from specsim.live.prices import Prices
from specsim.live.requests import LiveRequest
from specsim.live.step import Step
from specsim.live.verifier import Verifier
from specsim.serving.catch_up import CatchUp
from specsim.serving.mixture import catching_up
from specsim.serving.streams import policy_rng

if TYPE_CHECKING:
    from specsim.live.engine import Engine


class Stepper:
    """Takes an engine's steps.

    engine  whose
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.setup, self.scheduler, self.controller = engine.setup, engine.scheduler, engine.controller
        self.state, self.clock, self.cost = engine.setup.state, engine.clock, engine.cost
        self.step_index = 0
        self._decisions = 0
        self._rng = policy_rng(engine.options.seed, 0)
        self._prices = Prices(engine.cost)
        self._costs = DeviceCosts(engine.setup.device)
        specs = engine.controller.drafters
        longest = engine.setup.max_model_len
        self._limits = [min(spec.max_context or longest, longest) for spec in specs]
        vocabulary = engine.setup.target.model.get_output_embeddings().weight.shape[0]
        self._mixer = Mixer(engine.drafters, self._limits, self.state, vocabulary, self.clock)
        self._plan_kernel = engine.setup.ops.plan(
            engine.controller.budget_policy, engine.config.max_num_seqs, engine.controller.max_depth
        )
        self._membership = Membership(engine.scheduler.slots)
        self._no_drafts = torch.zeros(engine.config.max_num_seqs, dtype=torch.int64, device=engine.setup.device)
        self._catch_up = CatchUp(len(specs), len(engine.scheduler.slots.requests))
        self._verifier = Verifier(engine.setup.runner, self.state, engine.scheduler.slots, engine.acceptor)
        self._committer = Committer(engine, self._catch_up)
        self.ahead = Ahead(engine, self._limits)
        self._committed_at: float | None = None  # end of the step before, where work went on without a pause

    @torch.inference_mode()
    def step(self) -> None:
        """One step, from who runs to what everyone learns."""
        step = self._begin()
        begun = self._take_beginning(step)
        self.clock.start(begun)
        if len(step.slots):
            self._draft(step)
            self._plan(step)
        else:
            self._verifier.feed(step)
        verdict, first = self._verifier.run(step)
        self.clock.mark("verify")
        self._committer.ask(step, verdict, first)
        launched = self.ahead.launch(step, verdict, None if first is None else first.slots)
        self._prices.look_ahead()
        self._committed_at = self._committer.commit(step, verdict, first)
        self.ahead.keep(launched)
        if not self.scheduler.has_work():
            self.rest()

    def settle(self) -> None:
        """Tell everyone of the step before, and do what was put off until the pass of the next one."""
        self._committer.settle()
        self._committer.do_chores()

    def add_chore(self, chore: Callable[[], None]) -> None:
        """See `Engine.add_chore`."""
        self._committer.add_chore(chore)

    def rest(self) -> None:
        """Nothing is left to do: the next step does not begin where the last one ended."""
        self._committed_at = None
        self.ahead.drop()

    def _begin(self) -> Step:
        """Form the batch and let the controller order."""
        now = self.clock.now() if self._committed_at is None else self._committed_at
        scheduler = self.scheduler
        if self._members_may_change():
            self._committer.settle()  # who is told of a step finds its requests where they were
        chunks = [(slot, size) for slot, size in scheduler.schedule(now) if size]
        for slot in scheduler.admitted:
            request = self.scheduler.slots.request(slot)
            assert isinstance(request, LiveRequest)
            request.status = "running"
            # It may have come while the step before was told of, which is after this one's start.
            request.admitted_at = max(request.admitted_at, request.arrived_at)
            self.state.admit(slot, request)
            self._catch_up.admit(slot, 0)
            for drafter in self.engine.drafters:
                drafter.release(slot)  # who was preempted left the slot without having ended
        step = Step(now, scheduler.decoding, chunks, len(scheduler.waiting))
        self.step_index += 1
        if len(step.slots):
            step.members = self._membership.of(step.slots)
            step.context = self._context(step)
            step.order = self.controller.choose(step.context)
        return step

    def _take_beginning(self, step: Step) -> bool:
        """Let the step have what was launched ahead of it; whether there was anything."""
        if not len(step.slots):
            self.ahead.drop()
            return False
        begun = self.ahead.take(step)
        if step.batch is None:
            step.batch = self._batch(step)
        self.ahead.use_drafts(step)
        return begun

    def _members_may_change(self) -> bool:
        """Whether scheduling the next step may admit or preempt anybody."""
        scheduler, pool = self.scheduler, self.scheduler.pool
        each = pool.blocks_for(scheduler.lookahead + 1) + 1  # most that a decode may have to take on
        room = pool.num_blocks - pool.used >= each * len(scheduler.decoding)
        return bool(scheduler.prefilling) or bool(scheduler.waiting and scheduler.slots.free) or not room

    def _context(self, step: Step) -> StepContext:
        batch = len(step.slots)
        mean_context = self.scheduler.total_length / batch
        self._decisions += 1
        return StepContext(
            self._decisions - 1, step.started_at, batch, step.num_waiting, mean_context, self._rng,
            step.members.domains, partial(self._price, batch, mean_context), step.members.sequences,
        )  # fmt: skip

    def _price(self, batch: int, mean_context: float, drafter: DrafterSpec, depth: int) -> StepCost:
        return self._prices.step_cost(drafter, batch, depth, mean_context)

    def _batch(self, step: Step) -> DraftBatch:
        slots, state = step.slots, self.scheduler.slots
        lengths = state.length[slots]
        room = np.zeros_like(lengths)
        if step.order.arms is not None:
            room = self._mixer.room(step.order, lengths)
        elif step.order.depth:
            room = np.minimum(np.maximum(self._limits[step.order.arm] - lengths, 0), step.order.depth)
        return self.state.batch(slots, lengths, room, state.emitted[slots])

    def _draft(self, step: Step) -> None:
        """Let the ordered drafters catch up with what they missed, then propose."""
        order, batch = step.order, step.batch
        assert batch is not None
        missed = self._missed(step)
        step.missed = sum(missed)
        step.switch_price = catching_up(missed, self.controller.drafters, self.cost)
        if not order.depth:
            return
        if order.arms is not None:
            step.drafted = self._mixer.draft(order, batch, missed)
            step.draft = self._as_draft(step, step.drafted)
            return
        if step.drafted is None:
            drafter = self.engine.drafters[order.arm]
            if missed[order.arm]:
                drafter.catch_up(batch)
                self.clock.mark("switch")
            stop = partial(self._may_stop, step) if self.controller.stops_drafting else None
            step.drafted = drafter.draft(batch, order.depth, stop)
        step.draft = self._as_draft(step, step.drafted)
        if self.controller.stops_drafting:
            self._cut_short(step)
        self.clock.mark("draft")

    def _missed(self, step: Step) -> list[int]:
        """Tokens that each drafter must compute before it can draft in this step, by arm."""
        order, slots, length = step.order, step.slots, self.scheduler.slots.length
        arm = order.arm if order.depth else -1
        if self.controller.mixes:
            arms = np.full(len(slots), arm) if order.arms is None else order.arms
            return self._catch_up.missed_by_request(arms, slots, length)
        missed = self._catch_up.missed(arm, slots, length)
        return [missed if index == arm else 0 for index in range(len(self.controller.drafters))]

    def _as_draft(self, step: Step, drafted: Drafted) -> Draft:
        state, slots, order = self.scheduler.slots, step.slots, step.order
        assert step.context is not None
        spec = self.controller.drafters[order.arm] if order.arms is None else self._mixer.spec(order)
        return Draft(
            spec, drafted.num_drafts, drafted.scores, None, slots, state.num_steps[slots], state.emitted[slots] - 1,
            step.context.now - state.first_emit_at[slots], order.arms,
        )  # fmt: skip

    def _may_stop(self, step: Step, drafted: Drafted) -> bool:
        """Whether the policy ends every request's draft before the last one drafted so far."""
        columns = next(iter(drafted.scores.values())).shape[1]
        lengths = self.controller.draft_lengths(self._as_draft(step, drafted), self._device_price(step))
        return int(lengths.max()) < columns

    def _cut_short(self, step: Step) -> None:
        """Drop what was drafted beyond where the policy stopped."""
        assert step.draft is not None
        assert step.drafted is not None
        if self.engine.observers:
            self._keep_offered(step, step.drafted)
        lengths = self.controller.draft_lengths(step.draft, self._device_price(step))
        depth = max(1, int(lengths.max()))
        kept = torch.arange(depth, device=lengths.device) < lengths[:, None]
        scores = {name: torch.where(kept, values[:, :depth], 0.0) for name, values in step.drafted.scores.items()}
        log_prob = None if step.drafted.log_prob is None else step.drafted.log_prob[:, :depth]
        step.order = replace(step.order, depth=depth)
        step.drafted = Drafted(lengths, scores, log_prob)
        step.draft = self._as_draft(step, step.drafted)

    def _keep_offered(self, step: Step, drafted: Drafted) -> None:
        """Note all that was drafted: whoever takes the step again has to decide where to stop from the same."""
        batch = step.batch
        assert batch is not None
        columns = next(iter(drafted.scores.values())).shape[1]
        places = batch.device_lengths[:, None] + torch.arange(columns, device=batch.device_lengths.device)
        step.offered = drafted
        step.offered_tokens = batch.history[batch.device_slots[:, None], places]

    def _device_price(self, step: Step) -> Callable[[int], StepCost]:
        assert step.context is not None
        assert step.context.price is not None
        price = partial(step.context.price, self.controller.drafters[step.order.arm])
        return lambda depth: self._costs.there(price(depth), 0.0)

    def _plan(self, step: Step) -> None:
        """Ask what is verified. Its sum is the one number the host reads before the pass is chosen."""
        context = step.context
        assert context is not None
        added = self._added_seconds(step, context)
        if step.draft is None:
            step.num_verify = self._no_drafts[: len(step.slots)]
            self._verifier.feed(step)
            return
        drafter = step.draft.drafter
        if step.order.arms is not None:
            drafter, more = self._mixer.price(step.order, context.mean_context, self.cost)
            added += more
        cost = self._prices.step_cost(drafter, context.batch, step.order.depth, context.mean_context)
        columns = step.order.depth
        drafted = step.drafted
        assert drafted is not None
        if drafted.scores and next(iter(drafted.scores.values())).shape[1] < columns:
            raise AssertionError("fewer scores than drafts were ordered")
        step.num_verify = self.controller.plan(step.draft, self._costs.there(cost, added), self._plan_kernel).num_verify
        budget = step.num_verify.sum()
        self._verifier.feed(step)
        step.budget = int(budget)
        self.clock.mark("plan")

    def _added_seconds(self, step: Step, context: StepContext) -> float:
        """What the table says of switching and of the prompts computed beside the step."""
        tokens = sum(size for _, size in step.chunks)
        prefill = self.cost.prefill_seconds(tokens, context.mean_context) if tokens and step.order.depth else 0.0
        return step.switch_price + prefill
