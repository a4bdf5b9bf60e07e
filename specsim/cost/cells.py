"""The cells of a cost table: one measured point each, checked and stored as Parquet."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from specsim.errors import InputError

Phase: TypeAlias = Literal[
    "verify", "draft", "prefill", "plan", "host", "switch", "hidden", "late", "late_draft", "join"
]
Provenance: TypeAlias = Literal["measured", "published", "derived"]

PHASES: tuple[Phase, ...] = get_args(Phase)
PROVENANCES: tuple[Provenance, ...] = get_args(Provenance)

NEEDS: dict[Phase, tuple[str, ...]] = {
    "verify": ("tokens",),
    "draft": ("drafter", "depth"),
    "prefill": ("tokens",),
    "plan": (),
    "host": (),
    "switch": ("drafter", "tokens"),
    "hidden": (),
    "late": (),
    "late_draft": (),
    "join": ("tokens",),
}
"""Which of the nullable keys a phase has; the others must be null."""

NO_BATCH: tuple[Phase, ...] = ("prefill", "switch")
"""Phases priced by tokens, not by batch; their cells carry batch 1."""

NO_CONTEXT: tuple[Phase, ...] = ("plan", "host", "switch", "hidden", "late", "late_draft", "join")
"""Phases priced without context; their cells carry context 0."""


LONGEST = 1e6
"""Seconds, eleven days: nobody measured a longer step, and sums and squares of such are numbers still."""

SHORTEST_PASS = 1e-9
"""Seconds. Other phases may take none, but steps are told in plain passes."""

LARGEST = 2**31 - 1
"""No batch, number of tokens, depth or context is beyond it, as no limit of an engine is."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One measured point.

    phase        which part of a step
    seconds      median duration, 0 to `LONGEST` (verify: from `SHORTEST_PASS`)
    batch        running requests (1 in prefill and switch)
    tokens       verify: tokens fed, one anchor a request included, and inside capture sizes a capture size;
                 prefill: prompt tokens added to a step; switch: tokens the drafter missed;
                 join: requests admitted
    depth        draft: draft tokens a request
    context      mean sequence length of the requests (0 in the phases of `NO_CONTEXT`)
    drafter      draft and switch: whose
    num_samples  measurements behind the median (None: not known)
    provenance   how this number was got
    """

    phase: Phase
    seconds: float
    batch: int = 1
    tokens: int | None = None
    depth: int | None = None
    context: int = 0
    drafter: str | None = None
    num_samples: int | None = None
    provenance: Provenance = "measured"

    @property
    def key(self) -> tuple[Phase, str | None, int, int | None, int | None, int]:
        """What no two cells share."""
        return (self.phase, self.drafter, self.batch, self.tokens, self.depth, self.context)


SCHEMA = pa.schema(
    [
        pa.field("phase", pa.string(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("batch", pa.int64(), nullable=False),
        pa.field("tokens", pa.int64()),
        pa.field("depth", pa.int64()),
        pa.field("context", pa.int64(), nullable=False),
        pa.field("drafter", pa.string()),
        pa.field("num_samples", pa.int64()),
        pa.field("provenance", pa.string(), nullable=False),
    ]
)


def check_cells(cells: Iterable[Cell], capture_sizes: tuple[int, ...], where: str) -> tuple[Cell, ...]:
    """Refuse cells that cannot be priced from.

    cells          in any order
    capture_sizes  token buckets, rising
    where          the table, for the error
    returns        the same cells, in order
    Raises         InputError naming the first wrong row, its column and the allowed values
    """
    checked = tuple(cells)
    seen: set[tuple[object, ...]] = set()
    for row, cell in enumerate(checked):
        fault = _fault(cell, capture_sizes)
        if fault is None and cell.key in seen:
            fault = f"duplicate cell {cell.key}"
        if fault is not None:
            raise InputError(f"{where}: row {row}: {fault}")
        seen.add(cell.key)
    if not any(cell.phase == "verify" for cell in checked):
        raise InputError(f"{where}: no verify cells; a table needs at least one")
    return checked


def _fault(cell: Cell, capture_sizes: tuple[int, ...]) -> str | None:
    """What is wrong with one cell by itself."""
    if cell.phase not in PHASES:
        return f"phase {cell.phase!r} is not one of {', '.join(PHASES)}"
    if cell.provenance not in PROVENANCES:
        return f"provenance {cell.provenance!r} is not one of {', '.join(PROVENANCES)}"
    if not 0 <= cell.seconds <= LONGEST:
        return f"seconds is {cell.seconds}, allowed are numbers from 0 to {LONGEST:,.0f}"
    for column in ("drafter", "tokens", "depth"):
        if (getattr(cell, column) is not None) != (column in NEEDS[cell.phase]):
            must = "needed" if column in NEEDS[cell.phase] else "not allowed"
            return f"{column} is {getattr(cell, column)!r} but {must} in phase {cell.phase}"
    for column, least in (("batch", 1), ("tokens", 1), ("depth", 1), ("context", 0), ("num_samples", 1)):
        value = getattr(cell, column)
        if value is not None and not least <= value <= LARGEST:
            return f"{column} is {value}, allowed are integers from {least} to {LARGEST:,}"
    if cell.phase in NO_BATCH and cell.batch != 1:
        return f"batch is {cell.batch} but phase {cell.phase} is priced by tokens, not by batch (write 1)"
    if cell.phase in NO_CONTEXT and cell.context != 0:
        return f"context is {cell.context} but phase {cell.phase} is priced without it (write 0)"
    return _verify_fault(cell, capture_sizes) if cell.phase == "verify" else None


def _verify_fault(cell: Cell, capture_sizes: tuple[int, ...]) -> str | None:
    assert cell.tokens is not None
    if cell.seconds < SHORTEST_PASS:
        return f"seconds is {cell.seconds} in phase verify, allowed are numbers from {SHORTEST_PASS:g}"
    if cell.tokens < cell.batch:
        return f"tokens is {cell.tokens} at batch {cell.batch}, allowed from one a request"
    if capture_sizes and cell.tokens <= capture_sizes[-1] and cell.tokens not in capture_sizes:
        return f"tokens is {cell.tokens}, but a step of that size is padded: record it at its capture size"
    return None


def to_parquet(cells: Iterable[Cell]) -> bytes:
    """The cells as the bytes of cells.parquet."""
    rows = [astuple(cell) for cell in cells]
    names = [field.name for field in fields(Cell)]
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    sink = io.BytesIO()
    pq.write_table(pa.table({name: list(columns[name]) for name in SCHEMA.names}, schema=SCHEMA), sink)
    return sink.getvalue()


def from_parquet(data: bytes, where: str) -> tuple[Cell, ...]:
    """The cells that the bytes of a cells.parquet hold, unchecked.

    Raises   InputError when it is no Parquet file or its columns are not the schema's
    """
    try:
        table = pq.read_table(io.BytesIO(data))
        names = table.column_names
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{where}: not a readable Parquet file ({_one_line(error)})") from None
    for name in SCHEMA.names:
        if name not in names:
            raise InputError(f"{where}: column {name} is missing")
    for name in names:
        if name not in SCHEMA.names:
            raise InputError(f"{where}: unknown column {name} (allowed: {', '.join(SCHEMA.names)})")
    columns = {field.name: _values(table.column(field.name), field, where) for field in SCHEMA}
    return tuple(Cell(*row) for row in zip(*(columns[f.name] for f in fields(Cell)), strict=True))


def _values(column: pa.ChunkedArray, field: pa.Field, where: str) -> list[Any]:
    """A column as Python values of the schema's type."""
    try:
        values = column.cast(field.type).to_pylist()
    except (pa.ArrowException, ValueError) as error:  # ValueError: text that is not UTF-8
        raise InputError(f"{where}: column {field.name} is not {field.type} ({_one_line(error)})") from None
    if not field.nullable and None in values:
        raise InputError(f"{where}: column {field.name} has nulls")
    return list(values)


def sha256(data: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
