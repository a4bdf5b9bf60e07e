"""Where each request's rows lie in the blocks files, from the request_id column alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from specsim.errors import InputError
from specsim.trace.parquet import integers, reading


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of one blocks file.

    file       index into the trace's blocks files
    group      row group in that file
    first_row  index in the file of its first row
    num_rows   rows it holds
    """

    file: int
    group: int
    first_row: int
    num_rows: int


@dataclass(frozen=True, slots=True)
class RowIndex:
    """Runs of consecutive rows of one request, in file order.

    groups  every row group, in file order
    group   [R] int64, row group of each run
    start   [R] int64, first row of each run, within its row group
    stop    [R] int64, row after its last
    request [R] int64, request of each run
    first   [N] int64, first run of each request; its runs are consecutive
    count   [N] int64, number of its runs, 0 for a request without rows
    """

    groups: tuple[RowGroup, ...]
    group: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    request: np.ndarray
    first: np.ndarray
    count: np.ndarray

    def runs(self, request: int) -> list[tuple[int, int, int]]:
        """(row group, start, stop) of each run of the request at index `request`."""
        span = slice(int(self.first[request]), int(self.first[request] + self.count[request]))
        return list(zip(self.group[span].tolist(), self.start[span].tolist(), self.stop[span].tolist(), strict=True))


def index_rows(paths: Sequence[Path], files: Sequence[pq.ParquetFile], request_id: np.ndarray) -> RowIndex:
    """Index the rows of the blocks `files`, reading one row group's request_id at a time.

    request_id  [N] int64, the trace's requests
    Raises InputError for a row of an unknown request, or a request whose rows do not lie together.
    """
    by_id = np.argsort(request_id, kind="stable")
    groups: list[RowGroup] = []
    runs: list[np.ndarray] = []
    closed = np.zeros(len(request_id), dtype=bool)
    current = -1
    for number, (path, file) in enumerate(zip(paths, files, strict=True)):
        first_row = 0
        for group in range(file.num_row_groups):
            ids = _read_ids(path, file, group, first_row)
            starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])[: len(ids)])
            owners = _find(ids[starts], request_id, by_id)
            current = _check_runs(owners, ids[starts], first_row + starts, closed, current, path)
            stops = np.append(starts[1:], len(ids))[: len(starts)]
            runs.append(np.stack([np.full(len(starts), len(groups)), starts, stops, owners]))
            groups.append(RowGroup(number, group, first_row, len(ids)))
            first_row += len(ids)
    columns = np.concatenate([np.zeros((4, 0), dtype=np.int64), *runs], axis=1)
    request = columns[3]
    count = np.bincount(request, minlength=len(request_id)).astype(np.int64)
    first = np.full(len(request_id), len(request), dtype=np.int64)
    np.minimum.at(first, request, np.arange(len(request)))
    return RowIndex(tuple(groups), columns[0], columns[1], columns[2], request, first, count)


def _read_ids(path: Path, file: pq.ParquetFile, group: int, first_row: int) -> np.ndarray:
    with reading(path):
        ids, there = integers(file.read_row_group(group, columns=["request_id"], use_threads=False).column(0))
    if not there.all():
        raise _fault(path, first_row + int(np.argmin(there)), "null", "a value in every row")
    return ids


def _find(ids: np.ndarray, request_id: np.ndarray, by_id: np.ndarray) -> np.ndarray:
    place = np.minimum(np.searchsorted(request_id, ids, sorter=by_id), len(request_id) - 1)
    owners = by_id[place]
    return np.where(request_id[owners] == ids, owners, -1)


def _check_runs(
    owners: np.ndarray, ids: np.ndarray, rows: np.ndarray, closed: np.ndarray, current: int, path: Path
) -> int:
    """Judge the runs of one row group; returns the request that its last row belongs to."""
    for owner, request, row in zip(owners.tolist(), ids.tolist(), rows.tolist(), strict=True):
        if owner < 0:
            raise _fault(path, row, f"request {request} is not in requests.parquet", "its request_id values")
        if owner != current and closed[owner]:
            raise _fault(path, row, f"request {request} again, after others", "the rows of a request lie together")
        closed[owner] = True
        current = owner
    return current


def _fault(path: Path, row: int, found: str, allowed: str) -> InputError:
    return InputError(f"{path}: column 'request_id', row {row}: {found}; allowed: {allowed}")
