"""Rows of the blocks table as numpy columns, and one drafter's dense blocks from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from specsim.core import Blocks, DrafterSpec, Score
from specsim.errors import InputError
from specsim.trace.parquet import integers, strings
from specsim.trace.schema import LIST_COLUMNS, SCORE_COLUMNS


@dataclass(frozen=True, slots=True)
class Ragged:
    """A list column: row i holds values[start[i] : start[i] + length[i]].

    start   [N] int64
    length  [N] int64
    there   [N] bool, False where the row is null
    values  [M] float32, float64 or int64
    """

    start: np.ndarray
    length: np.ndarray
    there: np.ndarray
    values: np.ndarray

    def dense(self, rows: np.ndarray, num_drafts: np.ndarray, depth: int) -> np.ndarray:
        """`rows` padded with 0 to [len(rows), depth]; float lists become float64, int lists int64."""
        kind = np.int64 if self.values.dtype.kind == "i" else np.float64
        start = self.start[rows]
        total = int(num_drafts.sum())
        together = len(rows) > 0 and bool((start[1:] == start[:-1] + num_drafts[:-1]).all())
        if together and total == len(rows) * depth:  # full lists in one piece: no padding, no gathering
            return self.values[start[0] : start[0] + total].reshape(len(rows), depth).astype(kind)
        columns = np.arange(depth)
        kept = columns < num_drafts[:, None]
        padded = np.zeros(kept.shape, dtype=kind)
        if together:
            padded[kept] = self.values[start[0] : start[0] + total]
        else:
            padded[kept] = self.values[(start[:, None] + columns)[kept]]
        return padded


@dataclass(frozen=True, slots=True)
class BlockRows:
    """Consecutive rows of one blocks file.

    path          the file, for errors
    first_row     index in the file of row 0
    request_id    [N] int64
    position      [N] int64, output tokens already emitted
    drafter       [N] int64, index into the manifest's drafters, -1 for a name it does not have
    drafter_name  the names as written, for errors
    drafter_code  [N] int64, index into `drafter_name`, -1 for null
    num_drafts, num_accepted, num_verified  [N] int64
    lists         the list columns that the file has
    nulls         [N] bool, rows with a null where none is allowed, by column
    """

    path: Path
    first_row: int
    request_id: np.ndarray
    position: np.ndarray
    drafter: np.ndarray
    drafter_name: tuple[str, ...]
    drafter_code: np.ndarray
    num_drafts: np.ndarray
    num_accepted: np.ndarray
    num_verified: np.ndarray
    lists: dict[str, Ragged]
    nulls: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.request_id)

    @property
    def num_bytes(self) -> int:
        """Memory the columns hold."""
        scalars = 6 * self.request_id.nbytes
        return scalars + sum(ragged.values.nbytes + 17 * len(self) for ragged in self.lists.values())


def decode_rows(table: pa.Table, drafters: Sequence[str], path: Path, first_row: int) -> BlockRows:
    """`table`, rows of the blocks file at `path`, as numpy columns; values are not judged here."""
    codes, names = strings(table.column("drafter"))
    known = np.array([drafters.index(name) if name in drafters else -1 for name in names] + [-1], dtype=np.int64)
    scalars, nulls = {}, {}
    for name in ("request_id", "position", "num_drafts", "num_accepted", "num_verified"):
        scalars[name], there = integers(table.column(name))
        nulls[name] = ~there
    lists = {name: _ragged(table.column(name), name, path) for name in LIST_COLUMNS if name in table.column_names}
    return BlockRows(
        path=path,
        first_row=first_row,
        drafter=known[codes],
        drafter_name=names,
        drafter_code=codes,
        lists=lists,
        nulls=nulls | {"drafter": codes < 0, "confidence": ~lists["confidence"].there},
        **scalars,
    )


def _ragged(column: pa.ChunkedArray, name: str, path: Path) -> Ragged:
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    offsets = array.offsets.to_numpy().astype(np.int64)
    values = array.values
    if values.null_count:
        raise InputError(f"{path}: column {name!r}: a null inside a list; allowed: numbers")
    flat = values.to_numpy(zero_copy_only=False)
    flat = flat.astype(np.int64) if flat.dtype.kind in "iu" else flat
    return Ragged(offsets[:-1], np.diff(offsets), array.is_valid().to_numpy(zero_copy_only=False), flat)


Pieces: TypeAlias = Sequence[tuple[BlockRows, np.ndarray]]
"""Rows of the table, and the indices of those meant among them."""


class DrafterRows:
    """The rows of one request and drafter, positions rising.

    position  [P] int64, output tokens already emitted
    """

    def __init__(self, pieces: Pieces, spec: DrafterSpec) -> None:
        """Gather `pieces`, all of them rows of the drafter `spec`."""
        self.spec = spec
        self._pieces = pieces
        self._order: np.ndarray | None = None
        self.position = self._scalar("position")
        if not (self.position[1:] > self.position[:-1]).all():
            self._order = np.argsort(self.position, kind="stable")
            self.position = self.position[self._order]

    def _scalar(self, name: str) -> np.ndarray:
        return self._joined([getattr(rows, name)[taken] for rows, taken in self._pieces], np.zeros(0, dtype=np.int64))

    def _joined(self, parts: list[np.ndarray], none: np.ndarray) -> np.ndarray:
        column = parts[0] if len(parts) == 1 else np.concatenate(parts or [none])
        return column if self._order is None else column[self._order]

    def has(self, column: str) -> bool:
        """Whether every row has a value in the list column."""
        return all(column in rows.lists and bool(rows.lists[column].there[taken].all()) for rows, taken in self._pieces)

    def dense(self, column: str) -> np.ndarray:
        """A list column padded with 0 to [P, D], float64, or int64 for token ids."""
        depth = self.spec.max_depth
        parts = [rows.lists[column].dense(taken, rows.num_drafts[taken], depth) for rows, taken in self._pieces]
        return self._joined(parts, np.zeros((0, depth)))

    def blocks(self) -> Blocks:
        """The rows as read-only dense arrays; scores that are one column share one array."""
        counts = [self._scalar(name) for name in ("num_drafts", "num_accepted", "num_verified")]
        columns = {score: self._column(score) for score in self.spec.scores}
        dense = {column: self.dense(column) for column in set(columns.values())}
        scores = {
            score: shifted(dense[column], counts[0]) if score == "shifted_prob" else dense[column]
            for score, column in columns.items()
        }
        for array in [*counts, *scores.values()]:
            array.setflags(write=False)
        return Blocks(counts[0], counts[1], counts[2], scores)

    def _column(self, score: Score) -> str:
        column = SCORE_COLUMNS[score]
        if score == "max_prob" and self.spec.law == "point_mass" and not self.has(column):
            return SCORE_COLUMNS["drawn_prob"]  # a greedy draft is its law's most likely token
        return column


def shifted(confidence: np.ndarray, num_drafts: np.ndarray) -> np.ndarray:
    """The drawn token's probability at the position before: 1 at the first, 0 at and beyond `num_drafts`.

    confidence  [P, D] float64
    num_drafts  [P] int64
    """
    depth = confidence.shape[1]
    before = np.concatenate([np.ones((len(confidence), 1)), confidence[:, :-1]], axis=1)
    return np.where(np.arange(depth) < num_drafts[:, None], before, 0.0)
