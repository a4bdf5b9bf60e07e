"""Small traces for tests, and ways to spoil them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specsim.trace import DrafterEntry, Manifest, RecordedBlocks, RequestRow, TraceWriter
from specsim.trace.parquet import file_sha256


def drafter(name: str = "ngram", **changes) -> DrafterEntry:
    fields = {
        "name": name,
        "kind": "ngram",
        "law": "point_mass",
        "structure": "parallel",
        "scores": ("drawn_prob", "max_prob"),
        "max_depth": 4,
        "score_source": "share of past continuations that agree",
    }
    return DrafterEntry(**(fields | changes))


def manifest(*drafters: DrafterEntry, **changes) -> Manifest:
    fields = {
        "name": "small",
        "recorded_by": "specsim test",
        "how": "By hand.",
        "target": "none",
        "licence": "CC0-1.0",
        "drafters": drafters or (drafter("ngram"), drafter("exit", kind="early_exit", max_depth=3)),
    }
    return Manifest(**(fields | changes))


def recorded(rng: np.random.Generator, length: int, depth: int, **columns) -> RecordedBlocks:
    """Random blocks at every position of an output, as a recorder would observe them."""
    num_drafts = rng.integers(0, depth + 1, length)
    num_verified = np.minimum(num_drafts, length - np.arange(length))
    num_accepted = np.minimum(rng.geometric(0.4, length) - 1, num_verified)
    confidence = rng.random((length, depth), dtype=np.float32)
    return RecordedBlocks(num_drafts, num_accepted, num_verified, confidence, **columns)


def write_small(folder: Path, wanted: Manifest | None = None, lengths=(6, 9, 4), seed: int = 0, **columns) -> Path:
    """A valid position-indexed trace, one request a length, domains in turn."""
    wanted = wanted or manifest()
    rng = np.random.default_rng(seed)
    writer = TraceWriter(folder, wanted)
    for number, length in enumerate(lengths):
        blocks = {entry.name: recorded(rng, length, entry.max_depth, **columns) for entry in wanted.drafters}
        row = RequestRow(10 + number, ("chat", "code")[number % 2], 5, length, "stop", arrival_at=0.5 * number)
        writer.add(row, blocks)
    writer.finish()
    return folder


def spoil(folder: Path, file: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Rewrite a Parquet file as `change` leaves it, with a manifest whose hash fits: the fault itself must show."""
    path = folder / file
    pq.write_table(change(pq.read_table(path, partitioning=None)), path)
    reseal(folder)


def reseal(folder: Path) -> None:
    """Make the manifest's hashes fit the files."""
    edit_manifest(folder, lambda record: record["files"].update({n: file_sha256(folder / n) for n in record["files"]}))


def edit_manifest(folder: Path, change: Callable[[dict], object]) -> None:
    record = json.loads((folder / "manifest.json").read_text())
    change(record)
    (folder / "manifest.json").write_text(json.dumps(record))


def set_value(column: str, row: int, value: object) -> Callable[[pa.Table], pa.Table]:
    """A change that puts `value` in one cell, keeping the column's type."""

    def change(table: pa.Table) -> pa.Table:
        values = table.column(column).to_pylist()
        values[row] = value
        kind = table.schema.field(column).type
        plain = pa.string() if pa.types.is_dictionary(kind) else kind
        return replace_column(table, column, pa.array(values, plain))

    return change


def replace_column(table: pa.Table, column: str, values: pa.Array) -> pa.Table:
    at = table.schema.names.index(column)
    return table.set_column(at, pa.field(column, values.type), values)


def retype(column: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        return replace_column(table, column, pa.array(table.column(column).to_pylist(), kind))

    return change


def drop_row(row: int) -> Callable[[pa.Table], pa.Table]:
    return lambda table: pa.concat_tables([table.slice(0, row), table.slice(row + 1)])


def repeat_row(row: int) -> Callable[[pa.Table], pa.Table]:
    return lambda table: pa.concat_tables([table.slice(0, row + 1), table.slice(row)])
