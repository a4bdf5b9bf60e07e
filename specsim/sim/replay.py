"""Exact replay: the recorded blocks of the running requests, laid out so that one gather serves a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from specsim.core import SCORES, Blocks, Counterfactual, Draft, DrafterSpec, Score
from specsim.errors import InputError
from specsim.trace import TraceLike


class GatheredScores(Mapping[Score, np.ndarray]):
    """The scores of one step, gathered when a policy reads them and not before.

    rows        [B] int64, row of each request in the buffers
    depth       columns to keep
    num_drafts  [B] int64 where a row must be cut shorter than recorded, else None
    """

    def __init__(
        self, buffers: dict[Score, np.ndarray], rows: np.ndarray, depth: int, num_drafts: np.ndarray | None
    ) -> None:
        self._buffers = buffers
        self._rows = rows
        self._depth = depth
        self._num_drafts = num_drafts

    def __getitem__(self, score: Score) -> np.ndarray:
        buffer = self._buffers[score]
        gathered = buffer.take(self._rows, axis=0)
        if self._depth < gathered.shape[1]:
            gathered = gathered[:, : self._depth]
        if self._num_drafts is not None:
            gathered = np.where(np.arange(self._depth) < self._num_drafts[:, None], gathered, 0.0)
        return gathered

    def __iter__(self) -> Iterator[Score]:
        return iter(self._buffers)

    def __len__(self) -> int:
        return len(self._buffers)


class ArmReplay:
    """One drafter's recorded blocks of every running request.

    drafter         the drafter
    num_slots       slots
    max_positions   longest output that can run
    """

    def __init__(self, drafter: DrafterSpec, num_slots: int, max_positions: int) -> None:
        self.drafter = drafter
        self.stride = max_positions
        shape = (num_slots * max_positions, drafter.max_depth)
        self.scores: dict[Score, np.ndarray] = {s: np.zeros(shape) for s in SCORES if s in drafter.scores}
        self.num_drafts = np.zeros(shape[0], np.int64)
        self.num_accepted = np.zeros(shape[0], np.int64)
        self.checked: set[int] = set()  # trace rows whose acceptance is known throughout
        self.pending: list[tuple[int, int]] = []  # (slot, trace row) to load before the next gather


class Replay:
    """What the drafters propose and the target accepts, at wherever each running request is.

    trace           a position-indexed trace, or anything that reads like one
    num_slots       slots
    max_positions   longest output that can run, tokens

    Raises InputError for a trajectory trace: it holds only the blocks one policy visited.
    """

    def __init__(self, trace: TraceLike, num_slots: int, max_positions: int) -> None:
        if trace.kind != "position_indexed":
            raise InputError(
                f"a {trace.kind} trace holds only the blocks its own policy visited, so another policy cannot "
                "be replayed on it exactly; record a position_indexed trace with `specsim record`"
            )
        self.trace = trace
        self.arms = [ArmReplay(spec, num_slots, max_positions) for spec in trace.drafters]

    def admit(self, slot: int, index: int) -> None:
        """A request took a slot; its blocks are loaded when an arm first drafts for it."""
        for arm in self.arms:
            arm.pending.append((slot, index))

    def _load(self, arm: int) -> ArmReplay:
        replay = self.arms[arm]
        # Later entries of a slot supersede earlier ones, whose request has gone.
        for slot, index in dict(replay.pending).items():
            blocks = self.trace.blocks(index, arm)
            start = slot * replay.stride
            stop = start + min(len(blocks.num_drafts), replay.stride)
            length = stop - start
            if index not in replay.checked:
                self._check(index, replay, blocks)
            replay.num_drafts[start:stop] = blocks.num_drafts[:length]
            replay.num_accepted[start:stop] = blocks.num_accepted[:length]
            for score, buffer in replay.scores.items():
                buffer[start:stop] = blocks.scores[score][:length]
        replay.pending.clear()
        return replay

    def _check(self, index: int, replay: ArmReplay, blocks: Blocks) -> None:
        """Refuse acceptance that was not observed as far as the output goes."""
        positions = len(blocks.num_drafts)
        ahead = np.minimum(blocks.num_drafts, positions - np.arange(positions))
        if (blocks.num_verified < ahead).any():
            raise InputError(
                f"request {int(self.trace.requests.request_id[index])}, drafter {replay.drafter.name}: "
                "acceptance was censored inside the output, so it cannot be replayed exactly"
            )
        replay.checked.add(index)

    def draft(
        self, arm: int, slots: np.ndarray, emitted: np.ndarray, depth: int, room: np.ndarray | None
    ) -> tuple[Draft, np.ndarray]:
        """What an arm proposes now.

        arm         index of the drafter
        slots       [B] int64
        emitted     [B] int64, output tokens of each request so far
        depth       draft tokens asked for
        room        [B] int64, drafts that fit under a context limit (None: no limit)
        returns     the draft, and [B] int64 leading drafts the target would accept
        """
        replay = self._load(arm) if self.arms[arm].pending else self.arms[arm]
        rows = slots * replay.stride + emitted
        num_drafts = replay.num_drafts.take(rows)
        cut = None
        if depth < replay.drafter.max_depth:
            num_drafts = np.minimum(num_drafts, depth)
        if room is not None:
            num_drafts = np.minimum(num_drafts, np.maximum(room, 0))
            cut = num_drafts
        scores = GatheredScores(replay.scores, rows, depth, cut)
        return Draft(replay.drafter, num_drafts, scores), replay.num_accepted.take(rows)

    def counterfactual(self, slots: np.ndarray, emitted: np.ndarray, num_emitted: np.ndarray) -> Counterfactual:
        """What the tokens a step emits say of every drafter: how far its block runs along them.

        slots        [B] int64
        emitted      [B] int64, output tokens of each request before the step
        num_emitted  [B] int64, tokens the step emits
        """
        replays = [self._load(arm) if replay.pending else replay for arm, replay in enumerate(self.arms)]
        rows = [slots * replay.stride + emitted for replay in replays]
        known = [
            np.minimum(replay.num_drafts.take(row), num_emitted) for replay, row in zip(replays, rows, strict=True)
        ]
        accepted = [
            np.minimum(replay.num_accepted.take(row), most)
            for replay, row, most in zip(replays, rows, known, strict=True)
        ]
        # Within the emitted tokens, the first draft that is not accepted is contradicted.
        tested = [few + (few < most) for few, most in zip(accepted, known, strict=True)]
        return Counterfactual(np.stack(accepted), np.stack(tested))
