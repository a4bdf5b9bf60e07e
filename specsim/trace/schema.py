"""The columns of a trace's Parquet files: names, types, units, and which may be absent or null."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from specsim.core import Score
from specsim.errors import InputError


@dataclass(frozen=True, slots=True)
class Column:
    """One column of schema version 1.

    type      the type written; `accepts` says which types are read
    optional  whether the file may lack it
    nullable  whether a row may lack it
    meaning   one line with unit or range, for the documentation
    """

    name: str
    type: pa.DataType
    meaning: str
    optional: bool = False
    nullable: bool = False


NAME = pa.dictionary(pa.int32(), pa.string())
PROBABILITIES = pa.list_(pa.float32())

REQUEST_COLUMNS: tuple[Column, ...] = (
    Column("request_id", pa.int64(), "unique, at least 0, exact"),
    Column("domain", NAME, "kind of prompt, such as chat or code"),
    Column("num_prompt_tokens", pa.int64(), "tokens, at least 1"),
    Column("num_output_tokens", pa.int64(), "tokens, at least 1; the first comes from the prefill"),
    Column("finish_reason", NAME, "stop (a stop token or string) or length (the token limit)"),
    Column("arrival_at", pa.float64(), "seconds since the trace's start, at least 0", nullable=True),
    Column("prompt_id", pa.int64(), "number of the prompt in its prompt set", optional=True, nullable=True),
)

BLOCK_COLUMNS: tuple[Column, ...] = (
    Column("request_id", pa.int64(), "a request of requests.parquet; a request's rows lie together"),
    Column("position", pa.int32(), "output tokens already emitted, 0 to num_output_tokens - 1"),
    Column("drafter", NAME, "name of a drafter of the manifest"),
    Column("num_drafts", pa.int16(), "draft tokens proposed, 0 to the drafter's max_depth"),
    Column("num_accepted", pa.int16(), "leading drafts accepted, 0 to num_verified"),
    Column("num_verified", pa.int16(), "drafts whose acceptance was observed, 0 to num_drafts"),
    Column("confidence", PROBABILITIES, "[num_drafts] chance of the drawn token given the drafts before it, in [0, 1]"),
    Column("confidence_max", PROBABILITIES, "[num_drafts] largest chance of any token, in [0, 1]", True, True),
    Column("margin", PROBABILITIES, "[num_drafts] top-2 logit margin, at least 0", True, True),
    Column(
        "accept_prob", PROBABILITIES, "[num_drafts] min(1, target / draft) of the drawn token, in [0, 1]", True, True
    ),
    Column("survival", PROBABILITIES, "[num_drafts] the drafter's own estimate that the prefix survives", True, True),
    Column("draft_token_ids", pa.list_(pa.int32()), "[num_drafts] token ids, at least 0", True, True),
)

STEP_COLUMNS: tuple[Column, ...] = (
    Column("started_at", pa.float64(), "seconds since the run's start, at least 0"),
    Column("replica", pa.int64(), "which engine, from 0"),
    Column("batch", pa.int64(), "requests that decode in the step, at least 0"),
    Column("arm", pa.int64(), "index into the manifest's drafters, -1 for a plain step"),
    Column("depth", pa.int64(), "draft tokens asked of each request, 0 to the deepest drafter's max_depth"),
    Column("num_drafted", pa.int64(), "drafts of all requests, 0 to batch x depth"),
    Column("num_verified", pa.int64(), "drafts verified, 0 to num_drafted: the budget spent"),
    Column("num_tested", pa.int64(), "verified drafts that met an accept test, 0 to num_verified"),
    Column("num_accepted", pa.int64(), "drafts accepted, 0 to num_tested"),
    Column("num_emitted", pa.int64(), "tokens committed, at least 0"),
    Column("num_tokens_paid", pa.int64(), "anchors and verified drafts, padded to the step's token bucket, at least 0"),
    Column("prefill_tokens", pa.int64(), "prompt tokens computed in the step, at least 0"),
    Column("draft_seconds", pa.float64(), "seconds, at least 0"),
    Column("plan_seconds", pa.float64(), "seconds, at least 0"),
    Column("verify_seconds", pa.float64(), "seconds, at least 0"),
    Column("host_seconds", pa.float64(), "seconds, at least 0"),
    Column("switch_seconds", pa.float64(), "seconds, at least 0"),
    Column("prefill_seconds", pa.float64(), "seconds, at least 0"),
    Column("kv_blocks_used", pa.int64(), "KV cache blocks in use, at least 0"),
    Column("num_running", pa.int64(), "requests decoding or prefilling, at least 0"),
    Column("num_waiting", pa.int64(), "requests in the queue, at least 0"),
    Column("plan_hash", pa.int64(), "crc32 of the verified length of each request, in batch order"),
)
"""The columns of `telemetry.STEP_DTYPE`, in its order."""

SCORE_COLUMNS: dict[Score, str] = {
    "drawn_prob": "confidence",
    "max_prob": "confidence_max",
    "margin": "margin",
    "shifted_prob": "confidence",
}
"""The column each score is read from."""

LIST_COLUMNS: tuple[str, ...] = tuple(column.name for column in BLOCK_COLUMNS if pa.types.is_list(column.type))


def arrow_schema(columns: tuple[Column, ...], names: set[str] | None = None) -> pa.Schema:
    """The Arrow schema to write `columns` with; `names` leaves out optional columns that are not in it."""
    written = [column for column in columns if not column.optional or names is None or column.name in names]
    return pa.schema([pa.field(column.name, column.type, column.nullable) for column in written])


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` with the columns and types of `schema`, in its order; null where it lacks one."""
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table.select(schema.names).replace_schema_metadata(None).cast(schema)


def check_columns(schema: pa.Schema, columns: tuple[Column, ...], path: Path) -> None:
    """Raise InputError unless `schema` has every required column, no unknown one, and allowed types."""
    known = {column.name: column for column in columns}
    for name in schema.names:
        if name not in known:
            raise InputError(f"{path}: unknown column {name!r}; allowed: {', '.join(known)}")
        if schema.names.count(name) > 1:
            raise InputError(f"{path}: column {name!r} appears twice; allowed: once")
    for column in columns:
        if column.name not in schema.names:
            if column.optional:
                continue
            raise InputError(f"{path}: column {column.name!r} is missing; allowed: {column.type}, {column.meaning}")
        found = schema.field(column.name).type
        if not accepts(column.type, found):
            raise InputError(f"{path}: column {column.name!r} has type {found}; allowed: {_allowed_types(column.type)}")


def accepts(wanted: pa.DataType, found: pa.DataType) -> bool:
    """Whether values of type `found` become `wanted` without losing anything."""
    if pa.types.is_list(wanted):
        is_list = pa.types.is_list(found) or pa.types.is_large_list(found)
        return is_list and accepts(wanted.value_type, found.value_type)
    if pa.types.is_dictionary(wanted) or pa.types.is_string(wanted):
        plain = found.value_type if pa.types.is_dictionary(found) else found
        return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain))
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(found)) and found != pa.uint64()
    return bool(pa.types.is_float32(found) or pa.types.is_float64(found))


def _allowed_types(wanted: pa.DataType) -> str:
    if pa.types.is_list(wanted):
        return f"a list of {_allowed_types(wanted.value_type)}"
    if pa.types.is_dictionary(wanted) or pa.types.is_string(wanted):
        return "string or dictionary of strings"
    return "an integer of at most 64 bits, signed" if pa.types.is_integer(wanted) else "float or double"
