"""What one finished run of a study leaves behind, and the folder where such records are kept."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specsim.errors import InputError
from specsim.metrics import Summary

SERIES = ("started_at", "budget_ratio", "emitted_per_request", "arm", "cumulative_tokens")

PARTS = "runs"
"""Folder of a study's records: one Parquet file a run, read as one data set."""


@dataclass(frozen=True)
class Record:
    """One run.

    key                     hash of what determined it
    table, policy           names
    batch, rate, seed       of its task
    summary                 its metrics
    num_decoded             tokens that decode steps emitted
    counts                  [D + 1, D + 1] int64, request-steps by verified and accepted drafts, all arms together
    drafted_request_steps   request-steps that drafted
    arm_share               share of decode steps by drafter name; `none` is the plain step
    itl_seconds             quantiles of the inter-token latency at `ITL_FRACTIONS`
    series                  decimated time series by the names in `SERIES` (empty unless steps were kept)
    lossy_reason            why the output law is not the target's (None: it is)
    clairvoyant             the controller knew what would be accepted
    notes                   what a reader must know
    """

    key: str
    table: str
    policy: str
    batch: int
    rate: float
    seed: int
    summary: Summary
    num_decoded: int
    counts: np.ndarray
    drafted_request_steps: int
    arm_share: dict[str, float]
    itl_seconds: list[float]
    series: dict[str, list[float]]
    lossy_reason: str | None
    clairvoyant: bool
    notes: tuple[str, ...]


SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("table", pa.string()),
        ("policy", pa.string()),
        ("batch", pa.int64()),
        ("rate", pa.float64()),
        ("seed", pa.int64()),
        *((field.name, pa.float64()) for field in dataclasses.fields(Summary)),
        ("num_decoded", pa.int64()),
        ("counts", pa.list_(pa.int64())),
        ("drafted_request_steps", pa.int64()),
        ("arms", pa.list_(pa.string())),
        ("arm_share", pa.list_(pa.float64())),
        ("itl_seconds", pa.list_(pa.float64())),
        *((f"series_{name}", pa.list_(pa.float64())) for name in SERIES),
        ("lossy_reason", pa.string()),
        ("clairvoyant", pa.bool_()),
        ("notes", pa.list_(pa.string())),
    ]
)


def write_record(folder: Path, record: Record) -> None:
    """Add one record to a study's folder; it is on disk, whole, when this returns.

    folder  of the study; made if needed
    """
    parts = folder / PARTS
    parts.mkdir(parents=True, exist_ok=True)
    partial = parts / f".{record.key}.{os.getpid()}.partial"
    with partial.open("wb") as file:
        pq.write_table(pa.Table.from_pylist([_row(record)], SCHEMA), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, part_path(folder, record.key))


def part_path(folder: Path, key: str) -> Path:
    """Where the record of that key lies."""
    return folder / PARTS / f"{key}.parquet"


def stored_keys(folder: Path) -> set[str]:
    """Keys of the finished runs in a study's folder."""
    return {part.stem for part in (folder / PARTS).glob("*.parquet")}


def read_records(folder: Path, keys: Iterable[str]) -> list[Record]:
    """The records of those keys, in that order.

    Raises  InputError when one is missing or is no record
    """
    return [_read_record(part_path(folder, key)) for key in keys]


def _read_record(path: Path) -> Record:
    try:
        return _record(pq.read_table(path, schema=SCHEMA).to_pylist()[0])
    except (OSError, pa.ArrowException, IndexError) as error:
        fault = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: not a finished run ({fault}); delete it to run it again") from None


def _row(record: Record) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(record, name) for name in ("key", "table", "policy", "batch", "rate", "seed")}
    row |= dataclasses.asdict(record.summary)
    row |= {f"series_{name}": values for name, values in record.series.items()}
    return row | {
        "num_decoded": record.num_decoded,
        "counts": record.counts.ravel().tolist(),
        "drafted_request_steps": record.drafted_request_steps,
        "arms": list(record.arm_share),
        "arm_share": list(record.arm_share.values()),
        "itl_seconds": record.itl_seconds,
        "lossy_reason": record.lossy_reason,
        "clairvoyant": record.clairvoyant,
        "notes": list(record.notes),
    }


def _record(row: dict[str, Any]) -> Record:
    values = {name: row[name] for name in ("key", "table", "policy", "batch", "rate", "seed", "num_decoded")}
    counts = np.array(row["counts"], dtype=np.int64)
    width = round(len(counts) ** 0.5)
    series = {name: row[f"series_{name}"] for name in SERIES if row[f"series_{name}"] is not None}
    return Record(
        **values,
        summary=Summary(**{field.name: row[field.name] for field in dataclasses.fields(Summary)}),
        counts=counts.reshape(width, width),
        drafted_request_steps=row["drafted_request_steps"],
        arm_share=dict(zip(row["arms"], row["arm_share"], strict=True)),
        itl_seconds=row["itl_seconds"],
        series=series,
        lossy_reason=row["lossy_reason"],
        clairvoyant=row["clairvoyant"],
        notes=tuple(row["notes"]),
    )
