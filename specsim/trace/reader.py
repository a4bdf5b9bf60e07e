"""A recorded trace, opened lazily."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from specsim.core import Blocks, DrafterSpec
from specsim.errors import InputError
from specsim.trace.blocks import BlockRows, assemble, decode_rows, dense_column
from specsim.trace.check import check_resolved, check_rows
from specsim.trace.index import RowIndex, index_rows
from specsim.trace.manifest import BLOCKS_FILE, REQUESTS_FILE, Manifest, TraceKind, read_manifest
from specsim.trace.parquet import file_sha256, open_parquet, reading
from specsim.trace.requests import Requests, read_requests
from specsim.trace.schema import BLOCK_COLUMNS, SCORE_COLUMNS, check_columns

CACHE_BYTES = 256 * 2**20
"""Decoded row groups kept in memory, at most."""


class BlocksTable:
    """The blocks files of a trace: row groups decoded on demand, the last used ones kept."""

    def __init__(self, paths: Sequence[Path], manifest: Manifest, requests: Requests, cache_bytes: int) -> None:
        self.paths = tuple(paths)
        self.manifest = manifest
        self.specs = manifest.specs
        self.names = [spec.name for spec in self.specs]
        self.cache_bytes = cache_bytes
        self.files = [self._open(path) for path in self.paths]
        self.index: RowIndex = index_rows(self.paths, self.files, requests.request_id)
        self._owner_tokens = requests.num_output_tokens
        self._kept: OrderedDict[int, BlockRows] = OrderedDict()
        self._kept_bytes = 0

    def _open(self, path: Path) -> pq.ParquetFile:
        file = open_parquet(path, ["drafter"])
        with reading(path):
            check_columns(file.schema_arrow, BLOCK_COLUMNS, path)
        for spec in self.specs:
            for score in spec.scores:
                column = SCORE_COLUMNS[score]
                served = score == "max_prob" and spec.law == "point_mass"
                if column not in file.schema_arrow.names and not served:
                    raise InputError(
                        f"{path}: column {column!r} is missing, though drafter {spec.name!r} offers {score}; "
                        f"allowed: a list in every row of that drafter"
                    )
        return file

    def decode(self, group: int) -> BlockRows:
        """Row group `group` of the index, every row checked, not kept."""
        where = self.index.groups[group]
        path = self.paths[where.file]
        with reading(path):
            table = self.files[where.file].read_row_group(where.group, use_threads=False)
            rows = decode_rows(table, self.names, path, where.first_row)
        runs = slice(*np.searchsorted(self.index.group, [group, group + 1]))
        owner = np.repeat(self.index.request[runs], self.index.stop[runs] - self.index.start[runs])
        tokens = self._owner_tokens[owner]
        check_rows(rows, self.specs, tokens)
        if self.manifest.kind == "position_indexed":
            check_resolved(rows, tokens)
        return rows

    def rows(self, group: int) -> BlockRows:
        """Row group `group` of the index, decoded once while it is among the last used."""
        if group in self._kept:
            self._kept.move_to_end(group)
            return self._kept[group]
        rows = self.decode(group)
        self._kept[group] = rows
        self._kept_bytes += rows.num_bytes
        while self._kept_bytes > self.cache_bytes and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popitem(last=False)[1].num_bytes
        return rows

    def pieces(self, request: int, drafter: int) -> list[tuple[BlockRows, np.ndarray]]:
        """The rows of one request and drafter, in position order, as (rows, which of them)."""
        found = []
        for group, start, stop in self.index.runs(request):
            rows = self.rows(group)
            taken = start + np.flatnonzero(rows.drafter[start:stop] == drafter)
            found.append((rows, taken[np.argsort(rows.position[taken], kind="stable")]))
        return found


@dataclass(frozen=True)
class Trace:
    """A recorded trace: the manifest and the requests in memory, the blocks on disk until asked for.

    path      the trace's folder
    manifest  what it is and how it was made
    requests  the requests' columns
    """

    path: Path
    manifest: Manifest
    requests: Requests
    _table: BlocksTable
    _members: np.ndarray

    @classmethod
    def open(cls, path: str | Path, verify_hashes: bool = False, cache_bytes: int = CACHE_BYTES) -> Trace:
        """Open the trace in the folder `path`: reads the manifest, the requests and the row index only.

        verify_hashes  also compare each file's sha256 with the manifest's
        cache_bytes    decoded rows to keep in memory, at most
        Raises InputError for anything wrong with what was read.
        """
        folder = Path(path)
        if not folder.is_dir():
            found = "not a folder" if folder.exists() else "missing"
            raise InputError(f"{folder}: {found}; allowed: a trace folder")
        manifest = read_manifest(folder)
        blocks = data_files(folder, manifest)
        if verify_hashes:
            check_hashes(folder, manifest)
        requests = read_requests(folder / REQUESTS_FILE)
        table = BlocksTable(blocks, manifest, requests, cache_bytes)
        return cls(folder, manifest, requests, table, np.arange(len(requests)))

    @property
    def kind(self) -> TraceKind:
        """Whether every output position has a row for every drafter."""
        return self.manifest.kind

    @property
    def drafters(self) -> tuple[DrafterSpec, ...]:
        """The drafters, index = arm."""
        return self._table.specs

    def __len__(self) -> int:
        return len(self.requests)

    def blocks(self, index: int, drafter: int) -> Blocks:
        """What `drafter` proposes at every output position of the request at `index`.

        index    request, 0 to len(trace) - 1
        drafter  arm, index into `drafters`
        returns  rows p = 0 .. num_output_tokens - 1, read-only
        Raises InputError for a trajectory trace, which lacks the positions nobody visited (see `visits`).
        """
        if self.kind != "position_indexed":
            raise InputError(
                f"{self.path}: a trajectory trace has only the positions one policy visited; "
                f"allowed: a position-indexed trace for exact replay"
            )
        return assemble(self._complete_pieces(index, drafter), self.drafters[drafter])

    def visits(self, index: int, drafter: int) -> tuple[np.ndarray, Blocks]:
        """The positions [P] int64 recorded for one request and drafter, rising, and their blocks."""
        pieces = self._table.pieces(int(self._members[index]), drafter)
        positions = [rows.position[taken] for rows, taken in pieces]
        return np.concatenate(positions or [np.zeros(0, dtype=np.int64)]), assemble(pieces, self.drafters[drafter])

    def column(self, index: int, drafter: int, name: str) -> np.ndarray:
        """One list column of one request and drafter, padded with 0: [P, D] float64, or int64 for token ids."""
        pieces = self._complete_pieces(index, drafter)
        if any(name not in rows.lists or not rows.lists[name].there[taken].all() for rows, taken in pieces):
            raise InputError(f"{self.path}: no column {name!r} for drafter {self.drafters[drafter].name!r}")
        return dense_column(pieces, name, self.drafters[drafter].max_depth)

    def _complete_pieces(self, index: int, drafter: int) -> list[tuple[BlockRows, np.ndarray]]:
        pieces = self._table.pieces(int(self._members[index]), drafter)
        if self.kind == "position_indexed":
            positions = np.concatenate([rows.position[taken] for rows, taken in pieces] or [np.zeros(0)])
            due = int(self.requests.num_output_tokens[index])
            if len(positions) != due or not np.array_equal(positions, np.arange(due)):
                raise InputError(
                    f"{self.path}: request {self.requests.request_id[index]} has {len(positions)} rows for drafter "
                    f"{self.drafters[drafter].name!r}; allowed: one at each of its {due} positions"
                )
        return pieces


def data_files(folder: Path, manifest: Manifest) -> list[Path]:
    """The blocks files of the trace in `folder`, after checking that what the manifest lists is what is there."""
    for name in manifest.files:
        if not (folder / name).is_file():
            raise InputError(f"{folder / name}: missing, though the manifest lists it")
    present = [REQUESTS_FILE, *sorted(str(p.relative_to(folder)) for p in folder.glob("blocks*/*.parquet"))]
    present += [p.name for p in sorted(folder.glob("*.parquet")) if p.name != REQUESTS_FILE]
    for name in present:
        if name not in manifest.files:
            raise InputError(f"{folder / name}: no sha256 in the manifest's files; allowed: every data file listed")
    single = BLOCKS_FILE in manifest.files
    parts = sorted(name for name in manifest.files if name.startswith("blocks/"))
    if single == bool(parts):
        raise InputError(
            f"{folder}: {'both' if single else 'neither'} {BLOCKS_FILE} and a blocks/ folder; allowed: one of them"
        )
    return [folder / name for name in ([BLOCKS_FILE] if single else parts)]


def check_hashes(folder: Path, manifest: Manifest) -> None:
    """Raise InputError unless each file of `folder` has the sha256 that the manifest gives it."""
    for name, expected in manifest.files.items():
        found = file_sha256(folder / name)
        if found != expected:
            raise InputError(f"{folder / name}: sha256 {found}; allowed: {expected}, as the manifest says")
