"""The requests of a recorded live run, simulated at the cost table's seconds instead of the measured ones.

Where the simulated run comes to places that the live one never saw, what happens there is resampled from what was
recorded, and counted: the prediction is then an estimate. A position-indexed trace of the same prompts knows all.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import simpy

from specsim.core import Blocks, Draft, Score
from specsim.errors import InputError
from specsim.serving.run_file import Submission
from specsim.serving.scheduler import Scheduler
from specsim.serving.slots import Request
from specsim.serving.streams import policy_rng
from specsim.serving.tally import Tally
from specsim.sim.events import ARRIVAL, Signal, Timed
from specsim.sim.replica import Replica, Step
from specsim.sim.rerun_replay import TrajectoryReplay, Visited
from specsim.sim.rerun_run import LiveRun, as_request, seconds_of
from specsim.trace import TraceLike
from specsim.trace.blocks import shifted


@dataclass(frozen=True)
class Prediction:
    """What the simulator says of the run's requests.

    requests     those finished, `telemetry.REQUEST_DTYPE`
    steps        engine steps, `telemetry.STEP_DTYPE`
    num_blocks   blocks that were drafted, a request and step each
    resampled    those of them that no recording knew
    censored     those whose acceptance was verified less far in the recording than here: counted as rejected there
    contradicted blocks of the run that the given trace has otherwise (0 without a trace)
    notes        what the cost table's answers rest on
    """

    requests: np.ndarray
    steps: np.ndarray
    num_blocks: int
    resampled: int
    censored: int
    contradicted: int
    notes: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether every block that was drafted is known to be what the models would have done."""
        return not (self.resampled or self.censored or self.contradicted)


class FilledReplay(TrajectoryReplay):
    """A trajectory that also answers where the run never was, by drawing from where it was."""

    def __init__(self, run: LiveRun) -> None:
        super().__init__(run)
        self.known: dict[int, int] = {}  # observed drafts of each slot's block
        self.num_blocks = self.resampled = 0
        self._num_requests = len(run.facts.submissions)

    def draft(
        self, arm: int, slots: np.ndarray, emitted: np.ndarray, depth: int, room: np.ndarray | None
    ) -> tuple[Draft, np.ndarray]:
        """See `Replay.draft`."""
        for slot, position in zip(slots.tolist(), emitted.tolist(), strict=True):
            blocks, row = self.block(self._owner[slot], arm, position)
            self.known[slot] = int(blocks.num_verified[row])
        return super().draft(arm, slots, emitted, depth, room)

    def block(self, sequence: int, arm: int, position: int) -> tuple[Blocks, int]:
        """The block there, or one drawn from the same request, or from all of them; the same one every time."""
        visited = self.visited(sequence, arm)
        row = visited.row.get(position)
        if row is not None:
            return visited.blocks, row
        key = zlib.crc32(f"{sequence} {arm} {position}".encode())
        if visited.row:
            return visited.blocks, key % len(visited.row)
        others = [found for other in range(self._num_requests) if (found := self.visited(other, arm)).row]
        if not others:
            raise InputError(f"drafter {self._drafters[arm].name} never drafted in the run, so nothing is known of it")
        chosen = others[key % len(others)]
        return chosen.blocks, (key >> 8) % len(chosen.row)

    def knows(self, sequence: int, arm: int, position: int) -> bool:
        """Whether the run was there."""
        return position in self.visited(sequence, arm).row


class JoinedReplay(FilledReplay):
    """What a position-indexed trace of the same prompts says of the run's requests.

    run    the recorded run
    trace  of the same prompts
    Raises InputError where they do not fit together
    """

    def __init__(self, run: LiveRun, trace: TraceLike) -> None:
        super().__init__(run)
        if trace.kind != "position_indexed":
            raise InputError(f"a {trace.kind} trace does not know every position; give a position_indexed one")
        self._joined = trace
        self._arms = [_arm_of(trace, index, run) for index in range(len(run.drafters))]
        self._where = _rows_of(trace, run)
        self.contradicted = self._contradictions()

    def _load(self, sequence: int, arm: int) -> Visited:
        blocks = self._joined.blocks(self._where[sequence], self._arms[arm])
        scores = {score: _score(blocks, score) for score in self._drafters[arm].scores}
        return Visited(
            {position: position for position in range(len(blocks.num_drafts))}, replace(blocks, scores=scores)
        )

    def _contradictions(self) -> int:
        """Blocks of the run whose acceptance the trace has otherwise."""
        wrong = 0
        for sequence, row in enumerate(self._rows):
            for arm in range(len(self._drafters) if row is not None else 0):
                positions, lived = self.trace.visits(row or 0, arm)
                blocks = self.visited(sequence, arm).blocks
                said = np.minimum(blocks.num_accepted[positions], lived.num_verified)
                wrong += int((said != lived.num_accepted).sum())
        return wrong


class PredictedReplica(Replica):
    """A replica that counts where what it replays was not observed."""

    num_blocks = resampled = censored = 0

    def start(self) -> Step:
        """See `Replica.start`."""
        step = super().start()
        if step.draft is None:
            return step
        replay, state = self.replay, self.scheduler.slots
        assert isinstance(replay, FilledReplay)
        arms = np.full(len(step.slots), step.order.arm) if step.order.arms is None else step.order.arms
        for i, slot in enumerate(step.slots.tolist()):
            position, known = int(state.emitted[slot]), replay.known[slot]
            self.num_blocks += 1
            self.resampled += not replay.knows(state.sequences[slot], int(arms[i]), position)
            cut = int(step.num_accepted[i]) == known < int(step.num_verify[i])
            self.censored += cut and position + known < int(state.limit[slot])
        return step


def predict(run: LiveRun, trace: TraceLike | None = None) -> Prediction:
    """Simulate the run's requests: the same controller from the same state, the same arrivals, the table's seconds.

    run     the recorded run; requests that got no token are left out, the others end where they ended
    trace   a position-indexed trace of the same prompts (None: what was recorded is all there is)
    Raises  InputError where the table has no price, or the trace is of other prompts
    """
    replay = FilledReplay(run) if trace is None else JoinedReplay(run, trace)
    wanted = [one for one in run.facts.submissions if one.num_output_tokens]
    requests = [as_request(one, one.num_output_tokens) for one in wanted]
    visible = [_visible_at(run, one) for one in wanted]
    env = simpy.Environment(min(visible))
    done, left = Signal(env), [len(requests)]
    closed = run.facts.closed_loop is not None
    # Clients of a closed loop submit what follows when what they had is finished, whenever that is now.
    owed = deque(r for r, one in zip(requests, wanted, strict=True) if closed and one.before_step)
    follow = {request.sequence for request in owed}
    cost = run.cost.fresh()
    limits, controller = run.facts.engine.limits, run.controller()

    def finished(_: Request) -> None:
        left[0] -= 1
        if not left[0]:
            done.fire(ARRIVAL)
        elif owed:
            following = owed.popleft()
            following.arrived_at = env.now
            replica.submit(following)

    replica = PredictedReplica(
        env, 0, Scheduler(limits, limits.max_num_seqs, controller.max_depth), replay,  # type: ignore[arg-type]
        cost, controller, Tally(run.drafters, record_steps=True), policy_rng(run.facts.seed, 0), finished,
    )  # fmt: skip
    env.process(replica.process())
    for request, instant in zip(requests, visible, strict=True):
        if request.sequence in follow:
            continue
        event = Timed(env, instant - env.now, ARRIVAL)
        event.callbacks.append(partial(_arrive, replica, request))
    env.run(until=done)
    assert replica.tally.steps is not None
    contradicted = replay.contradicted if isinstance(replay, JoinedReplay) else 0
    return Prediction(
        replica.tally.requests.table(), replica.tally.steps.table(), replica.num_blocks, replica.resampled,
        replica.censored, contradicted, tuple(sorted(cost.notes)),
    )  # fmt: skip


def _arrive(replica: Replica, request: Request, _: simpy.Event) -> None:
    replica.submit(request)


def _visible_at(run: LiveRun, one: Submission) -> float:
    """When a request could first be served: at its arrival, or where the engine idled, when it took up work again.

    An idle engine that is given many requests one after the other takes its next step once all are there.
    """
    steps, index = run.steps, one.before_step
    if index >= len(steps):
        return one.arrived_at
    started = float(steps["started_at"][index])
    before = 0.0 if index == 0 else float(steps["started_at"][index - 1]) + seconds_of(steps[index - 1]).total
    return started if index == 0 or before < started else min(one.arrived_at, started)


def _arm_of(trace: TraceLike, arm: int, run: LiveRun) -> int:
    """The trace's drafter that is the run's."""
    spec = run.drafters[arm]
    for index, other in enumerate(trace.drafters):
        if other.name == spec.name:
            if other.max_depth < spec.max_depth:
                raise InputError(
                    f"drafter {spec.name}: the trace has depth {other.max_depth}, the run {spec.max_depth}"
                )
            read = run.controller().budget_policy.score
            if read not in (None, "shifted_prob", *other.scores) and not (
                read == "max_prob" and spec.law == "point_mass"
            ):
                raise InputError(f"drafter {spec.name}: the trace lacks score {read}, which the policy reads")
            return index
    names = ", ".join(other.name for other in trace.drafters)
    raise InputError(f"the trace has no drafter {spec.name} (it has: {names})")


def _score(blocks: Blocks, score: Score) -> np.ndarray:
    """[P, D] a score of a trace that may not have it: derived where it can be, else 0, which nobody reads."""
    if score in blocks.scores:
        return blocks.scores[score]
    drawn = blocks.scores["drawn_prob"]
    if score == "shifted_prob":
        return shifted(drawn, blocks.num_drafts)
    return drawn if score == "max_prob" else np.zeros_like(drawn)


def _rows_of(trace: TraceLike, run: LiveRun) -> list[int]:
    """The trace's request of each submission: by the prompt's number, or else in order."""
    numbers = {int(number): row for row, number in enumerate(trace.requests.request_id.tolist())}
    found = []
    for one in run.facts.submissions:
        row = one.sequence if one.prompt_id is None else numbers.get(one.prompt_id, -1)
        if not 0 <= row < len(trace):
            raise InputError(f"the trace has no request for the run's request {one.request_id}")
        for name, least in (("num_prompt_tokens", False), ("num_output_tokens", True)):
            there, own = int(getattr(trace.requests, name)[row]), getattr(one, name)
            if there < own or (there != own and not least):
                raise InputError(
                    f"the run's request {one.request_id} has {name} {own}, request {trace.requests.request_id[row]} of "
                    f"the trace has {there}: not a trace of the same prompts and limits"
                )
        found.append(row)
    return found
