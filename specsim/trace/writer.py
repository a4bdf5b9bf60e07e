"""Writing a trace request by request, so that a killed run loses nothing it had written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specsim.errors import InputError
from specsim.telemetry import FINISH_REASONS
from specsim.trace.blocks import decode_rows
from specsim.trace.check import check_resolved, check_rows
from specsim.trace.encode import RecordedBlocks, RequestRow, blocks_table
from specsim.trace.files import check_new, new_folder, seal, write_blocks, write_requests
from specsim.trace.manifest import (
    BLOCKS_FILE,
    MANIFEST_FILE,
    REQUESTS_FILE,
    STEPS_FILE,
    Manifest,
    read_manifest,
    write_manifest,
)
from specsim.trace.parquet import reading
from specsim.trace.schema import BLOCK_COLUMNS, arrow_schema, conform
from specsim.trace.steps import steps_table
from specsim.trace.validate import KeyChecker

PARTS_FOLDER = "parts"
REQUEST_KEY = b"specsim.request"


def check_writable(path: Path, resume: bool = False) -> None:
    """Refuse a folder that no trace can be written to, as far as it can be known before there is a manifest.

    resume  whether a partly written trace may be there
    Raises  InputError, see `TraceWriter`
    """
    parts = path / PARTS_FOLDER
    if (path / MANIFEST_FILE).exists():
        raise InputError(f"{path}: holds a finished trace; allowed: a new or empty folder")
    if not (parts / MANIFEST_FILE).exists():
        check_new(parts)
    elif not resume:
        raise InputError(f"{path}: holds a partly written trace; allowed: resume it, or a new folder")


class TraceWriter:
    """Writes a trace folder: each request is durable when `add` returns, `finish` makes the trace of them."""

    def __init__(self, path: str | Path, manifest: Manifest, resume: bool = False) -> None:
        """Start or continue writing at `path`.

        resume  continue a partly written trace of the same manifest
        Raises InputError when `path` holds a trace already, or a partly written one that is not resumed.
        """
        self.path = Path(path)
        self.manifest = manifest
        self._parts = self.path / PARTS_FOLDER
        self._specs = manifest.specs
        check_writable(self.path, resume)
        if (self._parts / MANIFEST_FILE).exists():
            self._check_same_manifest()
        else:
            new_folder(self._parts)
            write_manifest(self._parts, manifest)
        self.done: set[int] = {int(part.stem) for part in self._parts.glob("*.parquet")}

    def _check_same_manifest(self) -> None:
        started = read_manifest(self._parts)
        for key in Manifest.model_fields:
            before, now = str(getattr(started, key)), str(getattr(self.manifest, key))
            if getattr(started, key) != getattr(self.manifest, key):
                raise InputError(
                    f"{self.path}: started with another {key!r}, {_from_difference(before, now)!r} instead of "
                    f"{_from_difference(now, before)!r}; allowed: resume with the same manifest"
                )

    def add(self, row: RequestRow, blocks: Mapping[str, RecordedBlocks]) -> None:
        """Write one request; it is on disk when this returns.

        blocks  what each drafter proposed, by name; in a position-indexed trace, of every drafter
        Raises InputError for a fault that `specsim trace validate` would find, or a request written before.
        """
        if row.request_id in self.done:
            raise InputError(f"{self.path}: request {row.request_id} is written already; allowed: each request once")
        part = self._parts / f"{row.request_id}.parquet"
        _check_request(row, part)
        table = blocks_table(row.request_id, blocks)
        self._check(row, table, part, 0)
        meta = {**(table.schema.metadata or {}), REQUEST_KEY: json.dumps(asdict(row)).encode()}
        temporary = part.with_suffix(".partial")
        write_blocks(temporary, [table.replace_schema_metadata(meta)])
        _make_durable(temporary, part)
        self.done.add(row.request_id)

    def _check(self, row: RequestRow, table: pa.Table, path: Path, first_row: int) -> None:
        rows = decode_rows(table, [spec.name for spec in self._specs], path, first_row)
        tokens = np.full(len(rows), row.num_output_tokens)
        check_rows(rows, self._specs, tokens)
        if self.manifest.kind == "position_indexed":
            check_resolved(rows, tokens)
        keys = KeyChecker(self.manifest.kind, self._specs, path)
        keys.hold(rows, np.arange(len(rows)))
        keys.finish_request(row.request_id, row.num_output_tokens)

    def finish(self, steps: np.ndarray | None = None) -> Manifest:
        """Make the trace of the requests added, in order of request_id, and return its manifest.

        steps  engine steps of the run, records of `telemetry.STEP_DTYPE` (None: not recorded)
        Raises InputError when no request was added.
        """
        if not self.done:
            raise InputError(f"{self.path}: no request was added; allowed: at least one")
        parts = [self._parts / f"{request_id}.parquet" for request_id in sorted(self.done)]
        rows = []
        for part in parts:
            with reading(part):
                rows.append(json.loads(pq.read_schema(part).metadata[REQUEST_KEY]))
        write_blocks(self.path / BLOCKS_FILE, _read_parts(parts))
        return self._seal(rows, steps)

    def finish_with(
        self, requests: Iterable[tuple[RequestRow, Mapping[str, RecordedBlocks]]], steps: np.ndarray | None = None
    ) -> Manifest:
        """Make the trace of requests that were kept elsewhere, when none was added, and return its manifest.

        requests  in order of request_id, each with its blocks by drafter, as for `add`; asked for one after the other
        steps     as for `finish`
        Raises InputError for a fault that `specsim trace validate` would find, or when there is no request.
        """
        if self.done:
            raise InputError(f"{self.path}: holds requests that were added one by one; allowed: `finish`")
        rows: list[dict[str, object]] = []
        write_blocks(self.path / BLOCKS_FILE, self._tables(requests, rows))
        if not rows:
            raise InputError(f"{self.path}: no request was added; allowed: at least one")
        return self._seal(rows, steps)

    def _tables(
        self, requests: Iterable[tuple[RequestRow, Mapping[str, RecordedBlocks]]], rows: list[dict[str, object]]
    ) -> Iterator[pa.Table]:
        """Each request's blocks, checked; `rows` takes in the requests."""
        path, first_row, last = self.path / BLOCKS_FILE, 0, -1
        for row, blocks in requests:
            _check_request(row, path)
            if row.request_id <= last:
                raise InputError(f"{path}: request {row.request_id} comes after {last}; allowed: rising, each once")
            table = blocks_table(row.request_id, blocks)
            self._check(row, table, path, first_row)
            rows.append(asdict(row))
            first_row, last = first_row + len(table), row.request_id
            yield table

    def _seal(self, rows: list[dict[str, object]], steps: np.ndarray | None) -> Manifest:
        write_requests(self.path / REQUESTS_FILE, rows)
        if steps is not None:
            pq.write_table(steps_table(steps), self.path / STEPS_FILE, write_page_checksum=True)
        self.manifest = seal(self.path, self.manifest)
        shutil.rmtree(self._parts)
        return self.manifest


def _read_parts(parts: Sequence[Path]) -> Iterator[pa.Table]:
    """Each part's table, with the columns that any part has."""
    names: set[str] = set()
    for part in parts:
        with reading(part):
            names |= set(pq.read_schema(part).names)
    schema = arrow_schema(BLOCK_COLUMNS, names)
    for part in parts:
        with reading(part):
            yield conform(pq.read_table(part, read_dictionary=["drafter"], partitioning=None), schema)


def _check_request(row: RequestRow, part: Path) -> None:
    for name in ("request_id", "num_prompt_tokens", "num_output_tokens"):
        value, least = getattr(row, name), 0 if name == "request_id" else 1
        if not isinstance(value, int) or not least <= value < 2**63:
            raise InputError(f"{part}: {name} {value!r}; allowed: an integer of at least {least}")
    if row.finish_reason not in FINISH_REASONS:
        raise InputError(f"{part}: finish_reason {row.finish_reason!r}; allowed: {' or '.join(FINISH_REASONS)}")
    if row.arrival_at is not None and not 0.0 <= row.arrival_at < float("inf"):
        raise InputError(f"{part}: arrival_at {row.arrival_at!r}; allowed: None, or seconds of at least 0")


def _make_durable(temporary: Path, final: Path) -> None:
    """Rename `temporary` to `final` once its bytes are on disk, so that `final` is complete or absent."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(final)
    folder = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _from_difference(text: str, other: str, most: int = 60) -> str:
    """A text from the word on in which it differs from another one, at most so many characters."""
    differing = (place for place, (one, two) in enumerate(zip(text, other, strict=False)) if one != two)
    start = text.rfind(" ", 0, next(differing, min(len(text), len(other)))) + 1
    return text[start : start + most]
