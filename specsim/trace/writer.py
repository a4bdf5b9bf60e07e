"""Writing a trace request by request, so that a killed run loses nothing it had written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specsim.errors import InputError
from specsim.telemetry import FINISH_REASONS
from specsim.trace.blocks import decode_rows
from specsim.trace.check import KeyChecker, check_resolved, check_rows
from specsim.trace.manifest import (
    BLOCKS_FILE,
    MANIFEST_FILE,
    REQUESTS_FILE,
    Manifest,
    read_manifest,
    write_manifest,
)
from specsim.trace.parquet import file_sha256, reading
from specsim.trace.schema import BLOCK_COLUMNS, LIST_COLUMNS, REQUEST_COLUMNS, arrow_schema

ROW_GROUP_ROWS = 8192
"""Rows of a row group at least, whole requests: what one look-up decodes."""

PARTS_FOLDER = "parts"
REQUEST_KEY = b"specsim.request"


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One row of requests.parquet; see `trace.requests.Requests` for units."""

    request_id: int
    domain: str
    num_prompt_tokens: int
    num_output_tokens: int
    finish_reason: str
    arrival_at: float | None = None
    prompt_id: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedBlocks:
    """What one drafter proposed at the positions of one request.

    num_drafts       [P] int
    num_accepted     [P] int
    num_verified     [P] int, min(num_drafts, num_output_tokens - position) in a position-indexed trace
    confidence       P lists of num_drafts floats, or an array [P, D] whose entries beyond num_drafts are ignored;
                     so are confidence_max, margin, accept_prob, survival and draft_token_ids (None: not recorded)
    position         [P] int, output tokens already emitted (None: 0 .. P-1)
    """

    num_drafts: Sequence[int] | np.ndarray
    num_accepted: Sequence[int] | np.ndarray
    num_verified: Sequence[int] | np.ndarray
    confidence: Sequence[Sequence[float]] | np.ndarray
    confidence_max: Sequence[Sequence[float]] | np.ndarray | None = None
    margin: Sequence[Sequence[float]] | np.ndarray | None = None
    accept_prob: Sequence[Sequence[float]] | np.ndarray | None = None
    survival: Sequence[Sequence[float]] | np.ndarray | None = None
    draft_token_ids: Sequence[Sequence[int]] | np.ndarray | None = None
    position: Sequence[int] | np.ndarray | None = None


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
        if (self.path / MANIFEST_FILE).exists():
            raise InputError(f"{self.path}: holds a finished trace; allowed: a new or empty folder")
        if (self._parts / MANIFEST_FILE).exists():
            self._check_resumable(resume)
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.glob("*.parquet"))):
            raise InputError(f"{self.path}: in use; allowed: a new or empty folder")
        else:
            self._parts.mkdir(parents=True, exist_ok=True)
            write_manifest(self._parts, manifest)
        self.done: set[int] = {int(part.stem) for part in self._parts.glob("*.parquet")}

    def _check_resumable(self, resume: bool) -> None:
        if not resume:
            raise InputError(f"{self.path}: holds a partly written trace; allowed: resume it, or a new folder")
        started = read_manifest(self._parts)
        for key in Manifest.model_fields:
            if getattr(started, key) != getattr(self.manifest, key):
                raise InputError(f"{self.path}: started with another {key!r}; allowed: resume with the same manifest")

    def add(self, row: RequestRow, blocks: Mapping[str, RecordedBlocks]) -> None:
        """Write one request; it is on disk when this returns.

        blocks  what each drafter proposed, by name; in a position-indexed trace, of every drafter
        Raises InputError for a fault that `specsim trace validate` would find, or a request written before.
        """
        if row.request_id in self.done:
            raise InputError(f"{self.path}: request {row.request_id} is written already; allowed: each request once")
        part = self._parts / f"{row.request_id}.parquet"
        table = blocks_table(row.request_id, blocks)
        self._check(row, table, part)
        meta = {**(table.schema.metadata or {}), REQUEST_KEY: json.dumps(asdict(row)).encode()}
        temporary = part.with_suffix(".partial")
        write_blocks(temporary, [table.replace_schema_metadata(meta)])
        _make_durable(temporary, part)
        self.done.add(row.request_id)

    def _check(self, row: RequestRow, table: pa.Table, part: Path) -> None:
        _check_request(row, part)
        rows = decode_rows(table, [spec.name for spec in self._specs], part, 0)
        tokens = np.full(len(rows), row.num_output_tokens)
        check_rows(rows, self._specs, tokens)
        if self.manifest.kind == "position_indexed":
            check_resolved(rows, tokens)
        keys = KeyChecker(self.manifest.kind, self._specs)
        keys.held.append((rows, np.arange(len(rows))))
        keys.finish_request(row.request_id, row.num_output_tokens)

    def finish(self) -> Manifest:
        """Make the trace of the requests added, in order of request_id, and return its manifest."""
        if not self.done:
            raise InputError(f"{self.path}: no request was added; allowed: at least one")
        parts = [self._parts / f"{request_id}.parquet" for request_id in sorted(self.done)]
        rows = []
        for part in parts:
            with reading(part):
                rows.append(json.loads(pq.read_schema(part).metadata[REQUEST_KEY]))
        write_requests(self.path / REQUESTS_FILE, rows)
        write_blocks(self.path / BLOCKS_FILE, _read_parts(parts))
        files = {name: file_sha256(self.path / name) for name in (REQUESTS_FILE, BLOCKS_FILE)}
        self.manifest = self.manifest.model_copy(update={"files": files})
        write_manifest(self.path, self.manifest)
        shutil.rmtree(self._parts)
        return self.manifest


def blocks_table(request_id: int, blocks: Mapping[str, RecordedBlocks]) -> pa.Table:
    """The rows of one request as an Arrow table of schema version 1, drafter by drafter."""
    given = {name for block in blocks.values() for name in LIST_COLUMNS if getattr(block, name) is not None}
    schema = arrow_schema(BLOCK_COLUMNS, given)
    pieces = [_drafter_table(request_id, name, block, schema) for name, block in blocks.items()]
    return pa.concat_tables(pieces) if pieces else schema.empty_table()


def _drafter_table(request_id: int, name: str, block: RecordedBlocks, schema: pa.Schema) -> pa.Table:
    num_drafts = np.asarray(block.num_drafts, dtype=np.int64)
    count = len(num_drafts)
    columns = {
        "request_id": np.full(count, request_id, dtype=np.int64),
        "position": np.arange(count) if block.position is None else np.asarray(block.position, dtype=np.int64),
        "drafter": pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), [name]),
        "num_drafts": num_drafts,
        "num_accepted": np.asarray(block.num_accepted, dtype=np.int64),
        "num_verified": np.asarray(block.num_verified, dtype=np.int64),
    }
    arrays = []
    for field in schema:
        if field.name in LIST_COLUMNS:
            arrays.append(_list_array(getattr(block, field.name), num_drafts, field, name))
        else:
            arrays.append(pa.array(columns[field.name]).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _list_array(
    values: Sequence[Sequence[float]] | np.ndarray | None, num_drafts: np.ndarray, field: pa.Field, drafter: str
) -> pa.Array:
    if values is None:
        return pa.nulls(len(num_drafts), field.type)
    kind = field.type.value_type.to_pandas_dtype()
    if isinstance(values, np.ndarray) and values.ndim == 2:
        if values.shape[1] < num_drafts.max(initial=0):
            raise InputError(
                f"drafter {drafter!r}: column {field.name!r} has {values.shape[1]} entries a row; "
                f"allowed: at least num_drafts, up to {num_drafts.max()}"
            )
        lengths = num_drafts
        flat = values[np.arange(values.shape[1]) < num_drafts[:, None]].astype(kind)
    else:
        lengths = np.array([len(row) for row in values], dtype=np.int64)
        flat = np.concatenate([np.asarray(row, dtype=kind) for row in values] or [np.zeros(0, dtype=kind)])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(flat, type=field.type.value_type), type=field.type)


def write_requests(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write requests.parquet; `rows` are the fields of RequestRow."""
    names = {name for row in rows for name, value in row.items() if value is not None}
    pq.write_table(pa.Table.from_pylist(list(rows), arrow_schema(REQUEST_COLUMNS, names)), path, **_FILE_OPTIONS)


def write_blocks(path: Path, tables: Iterator[pa.Table] | Sequence[pa.Table]) -> None:
    """Write a blocks file of `tables`, each a request's rows, in row groups of whole requests."""
    writer: pq.ParquetWriter | None = None
    held: list[pa.Table] = []
    try:
        for table in tables:
            if writer is None:
                floats = [f"{f.name}.list.element" for f in table.schema if f.name in LIST_COLUMNS]
                floats = [name for name in floats if not name.startswith("draft_token_ids")]
                writer = pq.ParquetWriter(path, table.schema, use_byte_stream_split=floats, **_FILE_OPTIONS)
            held.append(table)
            if sum(len(piece) for piece in held) >= ROW_GROUP_ROWS:
                _write_group(writer, held)
                held = []
        if writer is not None and held:
            _write_group(writer, held)
    finally:
        if writer is not None:
            writer.close()


_FILE_OPTIONS = {
    "compression": "zstd",
    "compression_level": 9,
    "use_dictionary": ["request_id", "drafter", "domain", "finish_reason"],
    "write_page_checksum": True,
}


def _write_group(writer: pq.ParquetWriter, tables: Sequence[pa.Table]) -> None:
    table = pa.concat_tables([piece.cast(writer.schema) for piece in tables]).unify_dictionaries()
    writer.write_table(table, row_group_size=len(table))


def _read_parts(parts: Sequence[Path]) -> Iterator[pa.Table]:
    """Each part's table, with the columns that any part has."""
    names: set[str] = set()
    for part in parts:
        with reading(part):
            names |= set(pq.read_schema(part).names)
    schema = arrow_schema(BLOCK_COLUMNS, names)
    for part in parts:
        with reading(part):
            table = pq.read_table(part, read_dictionary=["drafter"], partitioning=None).replace_schema_metadata(None)
        absent = [field for field in schema if field.name not in table.column_names]
        for field in absent:
            table = table.append_column(field, pa.nulls(len(table), field.type))
        yield table.select(schema.names).cast(schema)


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
