"""What a recorder hands over for one request, and its rows as an Arrow table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from specsim.errors import InputError
from specsim.trace.schema import BLOCK_COLUMNS, LIST_COLUMNS, arrow_schema


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
        values = getattr(block, field.name) if field.name in LIST_COLUMNS else columns[field.name]
        if values is not None and len(values) != count:
            raise InputError(
                f"drafter {name!r}: column {field.name!r} has {len(values)} rows; allowed: {count}, as num_drafts has"
            )
        if field.name in LIST_COLUMNS:
            arrays.append(_list_array(values, num_drafts, field, name))
        else:
            arrays.append(pa.array(values).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _list_array(
    values: Sequence[Sequence[float]] | np.ndarray | None, num_drafts: np.ndarray, field: pa.Field, drafter: str
) -> pa.Array:
    if values is None:
        return pa.nulls(len(num_drafts), field.type)
    kind = pa.array([], field.type.value_type).to_numpy().dtype  # to_pandas_dtype needs pandas before pyarrow 26
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
