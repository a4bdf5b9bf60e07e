"""What drafters proposed and the target accepted along the one path that a live run took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specsim.core import Blocks, Counterfactual, Draft, Score
from specsim.serving.run_file import LastBlock
from specsim.sim.rerun_run import LiveRun
from specsim.trace.blocks import shifted
from specsim.trace.schema import SCORE_COLUMNS


class MissingBlock(Exception):
    """A block is asked for that the run did not visit.

    request_id, position, drafter   which
    """

    def __init__(self, request_id: int, position: int, drafter: str) -> None:
        super().__init__(f"request {request_id}, output position {position}, drafter {drafter}")
        self.request_id, self.position, self.drafter = request_id, position, drafter


@dataclass(frozen=True, slots=True)
class Visited:
    """The recorded blocks of one request and drafter.

    row     place in `blocks` by output position
    blocks  as recorded
    """

    row: Mapping[int, int]
    blocks: Blocks


class TrajectoryReplay:
    """Answers as `sim.replay.Replay` does, from the blocks one run visited; requests are numbered by submission.

    run   the recorded run
    """

    def __init__(self, run: LiveRun) -> None:
        self.trace = run.trace
        self._drafters = run.drafters
        self._submissions = run.facts.submissions
        self._rows = run.rows()
        self._owner: dict[int, int] = {}
        self._visited: dict[tuple[int, int], Visited] = {}

    def admit(self, slot: int, index: int) -> None:
        """A request took a slot."""
        self._owner[slot] = index

    def draft(
        self, arm: int, slots: np.ndarray, emitted: np.ndarray, depth: int, room: np.ndarray | None
    ) -> tuple[Draft, np.ndarray]:
        """What an arm proposed at these very positions; see `Replay.draft`.

        Raises MissingBlock where the run was never there.
        """
        spec = self._drafters[arm]
        num_drafts, acceptable = np.zeros(len(slots), np.int64), np.zeros(len(slots), np.int64)
        scores: dict[Score, np.ndarray] = {score: np.zeros((len(slots), depth)) for score in spec.scores}
        for i, (slot, position) in enumerate(zip(slots.tolist(), emitted.tolist(), strict=True)):
            blocks, row = self.block(self._owner[slot], arm, position)
            count = min(int(blocks.num_drafts[row]), depth)
            if room is not None:
                count = min(count, max(int(room[i]), 0))
            num_drafts[i], acceptable[i] = count, blocks.num_accepted[row]
            for score, values in scores.items():
                values[i, :count] = blocks.scores[score][row, :count]
        return Draft(spec, num_drafts, scores), acceptable

    def block(self, sequence: int, arm: int, position: int) -> tuple[Blocks, int]:
        """The blocks that hold one position of a request, and its row in them.

        Raises MissingBlock where the run was never there.
        """
        visited = self.visited(sequence, arm)
        row = visited.row.get(position)
        if row is None:
            raise MissingBlock(self._submissions[sequence].request_id, position, self._drafters[arm].name)
        return visited.blocks, row

    def visited(self, sequence: int, arm: int) -> Visited:
        """All blocks of a request and drafter."""
        key = (sequence, arm)
        if key not in self._visited:
            self._visited[key] = self._load(sequence, arm)
        return self._visited[key]

    def _load(self, sequence: int, arm: int) -> Visited:
        spec, one, row = self._drafters[arm], self._submissions[sequence], self._rows[sequence]
        positions, parts = np.zeros(0, np.int64), _nothing(spec.scores, spec.max_depth)
        if row is not None:
            positions, parts = self.trace.visits(row, arm)
        last = one.last_block
        if last is not None and last.drafter == spec.name:
            parts = _with_last(parts, last, spec.max_depth)
            positions = np.append(positions, one.num_output_tokens)
        return Visited({position: row for row, position in enumerate(positions.tolist())}, parts)

    def counterfactual(self, slots: np.ndarray, emitted: np.ndarray, num_emitted: np.ndarray) -> Counterfactual:
        """No live run knows what idle drafters would have had accepted; a controller that asks is refused live."""
        raise NotImplementedError("a live run does not record every drafter")


def _nothing(scores: tuple[Score, ...], depth: int) -> Blocks:
    none = np.zeros(0, np.int64)
    return Blocks(none, none, none, {score: np.zeros((0, depth)) for score in scores})


def _with_last(blocks: Blocks, last: LastBlock, depth: int) -> Blocks:
    """The blocks and, behind them, the one that was drafted in the step that failed."""
    count = np.array([last.num_drafts], np.int64)

    def row(score: Score) -> np.ndarray:
        values = np.zeros((1, depth))
        column = SCORE_COLUMNS[score]
        given = last.scores.get(column, last.scores["confidence"])
        values[0, : last.num_drafts] = given
        return shifted(values, count) if score == "shifted_prob" else values

    none = np.zeros(1, np.int64)
    return Blocks(
        np.append(blocks.num_drafts, count),
        np.append(blocks.num_accepted, none),
        np.append(blocks.num_verified, none),
        {score: np.concatenate([values, row(score)]) for score, values in blocks.scores.items()},
    )
