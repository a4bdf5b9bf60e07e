"""The end of a step: tokens are emitted, requests end, telemetry is written, the controller learns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.core import Outcome, StepSeconds
from specsim.kernels.verify import Verdict
from specsim.live.commit import Emission, add_text, cut_blocks
from specsim.live.members import Members
from specsim.live.readback import Readback
from specsim.live.requests import LiveRequest
from specsim.live.step import Step
from specsim.live.verifier import FirstTokens
from specsim.serving.catch_up import CatchUp
from specsim.serving.tally import Block, plan_hash

if TYPE_CHECKING:
    from specsim.live.engine import Engine

NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class HostVerdict:
    """A `Verdict` on the host, [B] int64 numpy each."""

    num_accepted: np.ndarray
    next_token: np.ndarray
    faulty: np.ndarray


class Committer:
    """Ends an engine's steps.

    What the next step does not depend on is put off: text that ends nobody, counts, observers and listeners are told
    while the device is busy with the pass after. Everyone is told in the order of events all the same, so a step in
    which a request ends or begins to decode is told of at once.

    engine    whose
    catch_up  what idle drafters missed
    """

    def __init__(self, engine: Engine, catch_up: CatchUp) -> None:
        self._engine, self._catch_up = engine, catch_up
        self._scheduler, self._slots = engine.scheduler, engine.scheduler.slots
        self._readback = Readback(engine.setup.device)
        self._put_off: Callable[[], None] | None = None
        self._chores: list[Callable[[], None]] = []
        self._stop_ids = np.array(engine.setup.target.stop_ids, np.int64)

    def ask(self, step: Step, verdict: Verdict | None, first: FirstTokens | None) -> None:
        """Let what the host needs be copied there: verdicts, the plan, and what it was made from."""
        wanted = [*_columns(verdict), *_columns(None if first is None else first.verdict)]
        if verdict is not None:
            assert step.num_verify is not None
            wanted.append(step.num_verify)
        if step.draft is not None and step.device_tokens is not None:
            wanted += [step.device_tokens, step.draft.num_drafts, *step.draft.scores.values()]
        self._readback.ask(wanted)

    def commit(self, step: Step, verdict: Verdict | None, first: FirstTokens | None) -> float:
        """Wait for what was asked for, emit the step's tokens, finish what ended, and let the controller learn.

        returns  the instant of the commit, seconds
        """
        self.settle()
        self.do_chores()
        judged, begun = self._to_host(step, verdict, first)
        emission = None if judged is None else self._emission(step, judged)
        seconds = self._seconds(step)
        now = step.started_at + seconds.total
        report = self._report_of(step, emission, seconds, now)
        if emission is not None:
            self._advance(step, emission, now)
            self._engine.controller.observe(self._outcome(step, emission, seconds))
        for slot, size in step.chunks:
            self._slots.computed[slot] += size
        ended = [] if emission is None or judged is None else self._ended(step, emission, judged)
        if begun is None and not ended:
            self._put_off = partial(self._report_and_tell, report, step.members)
            return now
        report()
        if first is not None and begun is not None:
            self._begin_decoding(first.slots, begun, now)
        if emission is not None and judged is not None:
            for row in sorted({*ended, *step.members.heard}):
                self._end_or_tell_row(step, emission, judged, row, now)
        return now

    def settle(self) -> None:
        """Tell everyone what was put off."""
        put_off, self._put_off = self._put_off, None
        if put_off is not None:
            put_off()

    def add_chore(self, chore: Callable[[], None]) -> None:
        """Have something done for which nobody waits, once the device is busy again or nothing is left to do."""
        self._chores.append(chore)

    def do_chores(self) -> None:
        """Do everything that was asked for since."""
        chores, self._chores = self._chores, []
        for chore in chores:
            with self._engine.listening:
                chore()

    def _report_and_tell(self, report: Callable[[], None], members: Members) -> None:
        report()
        for row in members.heard:
            with self._engine.listening:
                members.requests[row].tell()

    def _report_of(self, step: Step, emission: Emission | None, seconds: StepSeconds, now: float) -> Callable[[], None]:
        """What tells tallies and observers of a step, as the engine is now, before it moves on."""
        gaps = now - self._slots.last_emit_at[step.slots]
        used, running = self._scheduler.pool.used, len(self._scheduler.running)

        def report() -> None:
            emitted = 0
            if emission is not None:
                emitted = int(emission.num_emitted.sum())
                add_text(step.blocks, emission, step.members)
                self._count(step, emission, gaps)
            self._engine.tally.step(step.order, seconds, len(step.slots), emitted, used)
            row = _row(step, emission, seconds, emitted, used, running)
            self._engine.announce(row, step, emission)

        return report

    def _to_host(
        self, step: Step, verdict: Verdict | None, first: FirstTokens | None
    ) -> tuple[HostVerdict | None, HostVerdict | None]:
        """The step's verdicts, with one wait; the step learns what was planned, and from what."""
        found = iter(self._readback.fetch())
        judged = None if verdict is None else HostVerdict(next(found), next(found), next(found))
        begun = None if first is None else HostVerdict(next(found), next(found), next(found))
        if judged is not None:
            step.verified = next(found)
        if step.draft is not None and step.device_tokens is not None:
            step.tokens, num_drafts = next(found), next(found)
            step.scores = dict(zip(step.draft.scores, found, strict=True))
            step.seen = replace(step.draft, num_drafts=num_drafts, scores=step.scores)
        return judged, begun

    def _emission(self, step: Step, judged: HostVerdict) -> Emission:
        """The tokens of each request, cut where it ends."""
        count, depth = len(step.slots), step.tokens.shape[1]
        step.blocks = np.zeros((count, depth + 1), np.int64)
        if depth:
            step.blocks[:, :depth] = step.tokens
        step.blocks[np.arange(count), judged.num_accepted] = judged.next_token
        room = self._slots.limit[step.slots] - self._slots.emitted[step.slots]
        # Where a law is none, the drafts accepted before it are output all the same, as without drafts.
        if np.maximum.reduce(judged.faulty) >= 0:
            room = np.where(judged.faulty >= 0, np.minimum(room, judged.num_accepted), room)
        return cut_blocks(step.blocks, judged.num_accepted, room, self._stop_ids, step.members)

    def _seconds(self, step: Step) -> StepSeconds:
        """Phases as measured; the host's share is what is left of the whole step.

        Prompts are computed in the same pass as drafts: the pass is shared out by tokens.
        """
        clock = self._engine.clock
        found = clock.seconds()
        total = max(clock.now() - step.started_at, 0.0)
        passed = found.get("verify", 0.0)
        prompts = sum(size for _, size in step.chunks)
        share = prompts / max(prompts + len(step.slots) + step.budget, 1)
        prefill = passed * share  # never more than all of it: a share of 1 rounds nothing
        phases = StepSeconds(
            draft=found.get("draft", 0.0), plan=found.get("plan", 0.0), verify=passed - prefill,
            switch=found.get("switch", 0.0), prefill=prefill,
        )  # fmt: skip
        return replace(phases, host=max(total - phases.total, 0.0))

    def _advance(self, step: Step, emission: Emission, now: float) -> None:
        """Move every request on by what it emitted."""
        slots, state = step.slots, self._slots
        state.last_emit_at[slots] = now
        state.emitted[slots] += emission.num_emitted
        state.length[slots] += emission.num_emitted
        state.num_steps[slots] += 1
        self._scheduler.total_length += int(emission.num_emitted.sum())
        blocks, counts = step.blocks.tolist(), emission.num_emitted.tolist()
        for request, block, count in zip(step.members.requests, blocks, counts, strict=True):
            request.token_ids += block[:count]

    def _count(self, step: Step, emission: Emission, gaps: np.ndarray) -> None:
        arm, num_drafts = (-1, NONE) if step.seen is None else (step.order.arm, step.seen.num_drafts)
        told = Block(num_drafts, step.verified, emission.num_accepted, emission.num_emitted)
        if step.order.arms is None:
            self._engine.tally.decode(arm, told, gaps)
        else:
            self._engine.tally.decode_mixed(step.order.arms, told, gaps)

    def _outcome(self, step: Step, emission: Emission, seconds: StepSeconds) -> Outcome:
        assert step.context is not None
        return Outcome(
            step.order, step.seen, step.verified, emission.num_accepted, emission.num_emitted, seconds,
            step.context.domains, None, step.context.requests,
        )  # fmt: skip

    def _begin_decoding(self, slots: np.ndarray, begun: HostVerdict, now: float) -> None:
        """Prompts are complete: their last position yields a token."""
        state = self._slots
        for row, slot in enumerate(slots.tolist()):
            request = self._request(slot)
            if begun.faulty[row] >= 0:
                self._fail(slot, int(state.emitted[slot]), now)
                continue
            room = state.limit[slot : slot + 1] - state.emitted[slot]
            block = begun.next_token[row : row + 1, None]
            alone = Members([request])
            emission = cut_blocks(block, np.zeros(1, np.int64), room, self._stop_ids, alone)
            add_text(block, emission, alone)
            state.emitted[slot] += 1
            state.length[slot] += 1
            state.last_emit_at[slot] = now
            self._engine.tally.totals.num_first += 1
            if np.isnan(request.first_token_at):
                request.first_token_at = now
            state.first_emit_at[slot] = request.first_token_at
            request.token_ids.append(int(block[0, 0]))
            self._scheduler.finish_prefill(slot)
            self._catch_up.join()
            self._end_or_tell(slot, bool(emission.stopped[0]), now)

    def _ended(self, step: Step, emission: Emission, judged: HostVerdict) -> list[int]:
        """Rows of those whose last step it was."""
        full = self._slots.emitted[step.slots] >= self._slots.limit[step.slots]
        return [int(row) for row in np.flatnonzero(full | emission.stopped | (judged.faulty >= 0))]

    def _end_or_tell_row(self, step: Step, emission: Emission, judged: HostVerdict, row: int, now: float) -> None:
        slot = int(step.slots[row])
        emitted, stopped = int(self._slots.emitted[slot]), bool(emission.stopped[row])
        if judged.faulty[row] >= 0 and not stopped and emitted < self._slots.limit[slot]:
            self._fail(slot, emitted, now)
        else:
            self._end_or_tell(slot, stopped, now)

    def _end_or_tell(self, slot: int, stopped: bool, now: float) -> None:
        request, state = self._request(slot), self._slots
        if not stopped and state.emitted[slot] < state.limit[slot]:
            with self._engine.listening:
                request.tell()
            return
        request.finishes_by_stop, request.status = stopped, "finished"
        request.num_emitted, request.num_steps = int(state.emitted[slot]), int(state.num_steps[slot])
        self._engine.end(request, slot, now)

    def _fail(self, slot: int, position: int, now: float) -> None:
        """One request has no law any more; the others go on."""
        request = self._request(slot)
        request.error = f"request {request.request_id}: the law at output position {position} holds NaN"
        request.status = "failed"
        self._engine.end(request, slot, now)

    def _request(self, slot: int) -> LiveRequest:
        request = self._slots.request(slot)
        assert isinstance(request, LiveRequest)
        return request


def _columns(verdict: Verdict | None) -> tuple[Any, ...]:
    return () if verdict is None else (verdict.num_accepted, verdict.next_token, verdict.faulty)


def _row(
    step: Step, emission: Emission | None, seconds: StepSeconds, emitted: int, used: int, running: int
) -> tuple[float, ...]:
    """The step's record, in the order of `telemetry.STEP_DTYPE`."""
    drafted = 0 if step.seen is None else int(step.seen.num_drafts.sum())
    accepted = tested = 0
    if emission is not None:
        accepted = int(emission.num_accepted.sum())
        rejected = (emission.num_accepted < step.verified) & (emission.num_emitted > emission.num_accepted)
        tested = accepted + int(rejected.sum())
    return (
        step.started_at, 0, len(step.slots), step.order.arm if step.order.depth else -1, step.order.depth, drafted,
        step.budget, tested, accepted, emitted, step.paid, sum(size for _, size in step.chunks),
        seconds.draft, seconds.plan, seconds.verify, seconds.host, seconds.switch, seconds.prefill,
        used, running, step.num_waiting, plan_hash(step.verified),
    )  # fmt: skip
