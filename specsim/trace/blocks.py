"""Rows of the blocks table as numpy columns, and one drafter's dense blocks from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
        columns = np.arange(depth)
        kept = columns < num_drafts[:, None]
        kind = np.int64 if self.values.dtype.kind == "i" else np.float64
        padded = np.zeros(kept.shape, dtype=kind)
        padded[kept] = self.values[(self.start[rows][:, None] + columns)[kept]]
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


def assemble(pieces: Sequence[tuple[BlockRows, np.ndarray]], spec: DrafterSpec) -> Blocks:
    """The blocks of one request and drafter, in position order.

    pieces   rows of the table, and which of them to take
    returns  read-only arrays
    """
    names = ("num_drafts", "num_accepted", "num_verified")
    counts = [np.concatenate([getattr(rows, name)[taken] for rows, taken in pieces]) for name in names]
    scores = {score: _score(pieces, score, spec, counts[0]) for score in spec.scores}
    for array in [*counts, *scores.values()]:
        array.setflags(write=False)
    return Blocks(counts[0], counts[1], counts[2], scores)


def dense_column(pieces: Sequence[tuple[BlockRows, np.ndarray]], column: str, depth: int) -> np.ndarray:
    """One list column of the rows of each piece, padded with 0 to [P, depth]."""
    return np.concatenate([rows.lists[column].dense(taken, rows.num_drafts[taken], depth) for rows, taken in pieces])


def score_column(rows: BlockRows, taken: np.ndarray, score: Score, spec: DrafterSpec) -> str:
    """The column that `score` of `spec` is read from.

    A greedy draft is its law's largest token, so where no largest probability was recorded the drawn one is it.
    """
    column = SCORE_COLUMNS[score]
    recorded = column in rows.lists and bool(rows.lists[column].there[taken].any())
    if score == "max_prob" and spec.law == "point_mass" and not recorded:
        return SCORE_COLUMNS["drawn_prob"]
    return column


def _score(
    pieces: Sequence[tuple[BlockRows, np.ndarray]], score: Score, spec: DrafterSpec, num_drafts: np.ndarray
) -> np.ndarray:
    column = score_column(*pieces[0], score, spec)
    values = dense_column(pieces, column, spec.max_depth)
    if score != "shifted_prob":
        return values
    shifted = np.ones_like(values)
    shifted[:, 1:] = values[:, :-1]
    shifted[np.arange(spec.max_depth) >= num_drafts[:, None]] = 0.0
    return shifted
