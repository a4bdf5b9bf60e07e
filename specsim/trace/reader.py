"""A recorded trace, opened lazily."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specsim.core import Blocks, DrafterSpec
from specsim.errors import InputError
from specsim.shipped import shipped_path
from specsim.trace.blocks import DrafterRows
from specsim.trace.files import blocks_files, check_hashes
from specsim.trace.info import describe
from specsim.trace.manifest import REQUESTS_FILE, STEPS_FILE, Manifest, TraceKind, read_manifest
from specsim.trace.requests import Requests, read_requests
from specsim.trace.slice import select, write_slice
from specsim.trace.steps import read_steps
from specsim.trace.table import BlocksTable
from specsim.trace.validate import ValidationReport, check_blocks

CACHE_BYTES = 256 * 2**20
"""Decoded row groups kept in memory, at most."""


class Trace:
    """A recorded trace: manifest and requests in memory, blocks on disk until asked for.

    path      the trace's folder
    manifest  what it is and how it was made
    requests  the requests' columns
    """

    def __init__(self, path: Path, manifest: Manifest, requests: Requests, table: BlocksTable, rows: np.ndarray):
        """See `Trace.open`; `rows` [N] int64 are the requests' rows in requests.parquet."""
        self.path = path
        self.manifest = manifest
        self.requests = requests
        self._table = table
        self._rows = rows

    @classmethod
    def open(cls, path: str | Path, verify_hashes: bool = False, cache_bytes: int = CACHE_BYTES) -> Trace:
        """Open a trace: reads the manifest, the requests and the row index only.

        path           its folder, or the name of a shipped trace
        verify_hashes  also compare each file's sha256 with the manifest's
        cache_bytes    decoded rows to keep in memory, at most
        Raises InputError for anything wrong with what was read.
        """
        folder = shipped_path("trace", path)
        manifest = read_manifest(folder)
        blocks = blocks_files(folder, manifest)
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

    def __repr__(self) -> str:
        return f"<Trace {self.path}: {len(self)} requests, {len(self.drafters)} drafters>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as the path and the selection: another process maps the same files."""
        return _reopen, (self.path, self._rows)

    def blocks(self, index: int, drafter: int) -> Blocks:
        """What `drafter` proposes at every output position of the request at `index`.

        index    request, 0 to len(trace) - 1
        drafter  arm, index into `drafters`
        returns  rows p = 0 .. num_output_tokens - 1, read-only
        Raises InputError for a trajectory trace, which lacks the positions nobody visited (see `visits`).
        """
        if self.kind != "position_indexed":
            raise InputError(
                f"{self.path}: a trajectory trace has only the positions that one policy visited; "
                f"allowed: a position-indexed trace"
            )
        return self._drafter_rows(index, drafter).blocks()

    def visits(self, index: int, drafter: int) -> tuple[np.ndarray, Blocks]:
        """The positions recorded for one request and drafter, [P] int64 and rising, and their blocks."""
        rows = self._drafter_rows(index, drafter)
        return rows.position, rows.blocks()

    def column(self, index: int, drafter: int, name: str) -> np.ndarray:
        """One list column of one request and drafter, padded with 0: [P, D] float64, or int64 for token ids.

        Raises InputError when it was not recorded.
        """
        rows = self._drafter_rows(index, drafter)
        if not rows.has(name):
            raise InputError(f"{self.path}: column {name!r} was not recorded for drafter {rows.spec.name!r}")
        return rows.dense(name)

    def _drafter_rows(self, index: int, drafter: int) -> DrafterRows:
        rows = DrafterRows(self._table.pieces(int(self._rows[index]), drafter), self.drafters[drafter])
        due = int(self.requests.num_output_tokens[index])
        if self.kind == "position_indexed" and not np.array_equal(rows.position, np.arange(due)):
            raise InputError(
                f"{self.path}: request {self.requests.request_id[index]} has {len(rows.position)} rows for drafter "
                f"{rows.spec.name!r}; allowed: one at each of its {due} output positions"
            )
        return rows

    def steps(self) -> np.ndarray | None:
        """The engine steps of the recorded run, records of `telemetry.STEP_DTYPE`; None when not recorded."""
        if STEPS_FILE not in self.manifest.files:
            return None
        return read_steps(self.path / STEPS_FILE, self.drafters)

    def validate(self) -> ValidationReport:
        """Check every byte and row of the whole folder, one row group in memory at a time.

        Raises InputError at the first fault, naming file, column, row and allowed values.
        """
        check_hashes(self.path, self.manifest)
        requests = read_requests(self.path / REQUESTS_FILE)
        num_rows = check_blocks(self._table, requests)
        steps = self.steps()
        num_steps = 0 if steps is None else len(steps)
        return ValidationReport(self.path, len(self.manifest.files), len(requests), num_rows, num_steps)

    def slice(
        self,
        domains: Iterable[str] | None = None,
        requests: slice | Sequence[int] | np.ndarray | None = None,
        out: str | Path | None = None,
    ) -> Trace:
        """The trace of some of the requests: a view of the same files, or a copy written to `out`.

        domains   names to keep (None: all)
        requests  indices to keep, before `domains` is applied (None: all)
        out       a new folder for the copy; the steps table, which describes the whole run, is left out
        Raises InputError for an unknown domain, an index out of range, or nothing left.
        """
        kept = select(self.requests, domains, requests)
        view = Trace(self.path, self.manifest, self.requests.take(kept), self._table, self._rows[kept])
        if out is None:
            return view
        write_slice(Path(out), self.manifest, view.requests, self._table, view._rows)
        return Trace.open(out)

    def info(self) -> dict[str, Any]:
        """What `specsim trace info` shows, JSON-able; reads every block once."""
        return {"path": str(self.path), **describe(self)}


def _reopen(path: Path, rows: np.ndarray) -> Trace:
    whole = Trace.open(path)
    return whole if len(rows) == len(whole) and (rows == np.arange(len(rows))).all() else whole.slice(requests=rows)
