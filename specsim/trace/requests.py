"""The requests of a trace, as numpy columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specsim.errors import InputError
from specsim.telemetry import FINISH_REASONS
from specsim.trace.check import Place
from specsim.trace.parquet import floats, integers, reading, strings
from specsim.trace.schema import REQUEST_COLUMNS, check_columns


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of a trace; row i of every column is the request at index i.

    request_id          [N] int64, exact
    domain              [N] int64, index into `domains`
    domains             the domains' names
    num_prompt_tokens   [N] int64, at least 1
    num_output_tokens   [N] int64, at least 1; the first comes from the prefill
    finish_reason       [N] int64, index into FINISH_REASONS
    arrival_at          [N] float64, seconds since the trace's start, NaN when the request has none
    prompt_id           [N] int64, number of the prompt in its prompt set, where `has_prompt_id`
    has_prompt_id       [N] bool, whether `prompt_id` was recorded (0 stands where it was not)
    """

    request_id: np.ndarray
    domain: np.ndarray
    domains: tuple[str, ...]
    num_prompt_tokens: np.ndarray
    num_output_tokens: np.ndarray
    finish_reason: np.ndarray
    arrival_at: np.ndarray
    prompt_id: np.ndarray
    has_prompt_id: np.ndarray

    def __len__(self) -> int:
        return len(self.request_id)

    def take(self, indices: np.ndarray) -> Requests:
        """The requests at `indices`, in that order."""
        names = [name for name in self.__slots__ if name != "domains"]
        return replace(self, **{name: getattr(self, name)[indices] for name in names})

    def records(self) -> list[dict[str, object]]:
        """One dictionary a request, its keys those of requests.parquet, None where there is no value."""
        prompts = zip(self.prompt_id.tolist(), self.has_prompt_id.tolist(), strict=True)
        columns = {
            "request_id": self.request_id.tolist(),
            "domain": [self.domains[code] for code in self.domain.tolist()],
            "num_prompt_tokens": self.num_prompt_tokens.tolist(),
            "num_output_tokens": self.num_output_tokens.tolist(),
            "finish_reason": [FINISH_REASONS[code] for code in self.finish_reason.tolist()],
            "arrival_at": [None if np.isnan(at) else at for at in self.arrival_at.tolist()],
            "prompt_id": [number if has else None for number, has in prompts],
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def read_requests(path: Path) -> Requests:
    """The requests table at `path`, every value checked.

    Raises InputError naming column, row and allowed values.
    """
    with reading(path):
        table = pq.read_table(path, memory_map=True, page_checksum_verification=True, partitioning=None)
        check_columns(table.schema, REQUEST_COLUMNS, path)
        if len(table) == 0:
            raise InputError(f"{path}: no rows; allowed: at least one request")
        return _from_table(table, Place(path))


def _from_table(table: pa.Table, place: Place) -> Requests:
    request_id = _counts(table, "request_id", 0, place)
    _check_distinct(request_id, place)
    domain, domains = strings(table.column("domain"))
    place.require("domain", domain >= 0, lambda i: "null", "a name in every row")
    prompt_id, has_prompt_id = np.zeros_like(request_id), np.zeros(len(table), dtype=bool)
    if "prompt_id" in table.column_names:
        prompt_id, has_prompt_id = integers(table.column("prompt_id"))
    return Requests(
        request_id=request_id,
        domain=domain,
        domains=domains,
        num_prompt_tokens=_counts(table, "num_prompt_tokens", 1, place),
        num_output_tokens=_counts(table, "num_output_tokens", 1, place),
        finish_reason=_finish_codes(table, place),
        arrival_at=_arrivals(table, place),
        prompt_id=prompt_id,
        has_prompt_id=has_prompt_id,
    )


def _counts(table: pa.Table, column: str, least: int, place: Place) -> np.ndarray:
    values, there = integers(table.column(column))
    place.require(column, there, lambda i: "null", "a value in every row")
    place.require(column, values >= least, lambda i: values[i], f"at least {least}")
    return values


def _arrivals(table: pa.Table, place: Place) -> np.ndarray:
    values, there = floats(table.column("arrival_at"))
    good = ~there | (np.isfinite(values) & (values >= 0.0))
    place.require("arrival_at", good, lambda i: values[i], "null, or finite seconds, at least 0")
    return np.where(there, values, np.nan)


def _finish_codes(table: pa.Table, place: Place) -> np.ndarray:
    codes, names = strings(table.column("finish_reason"))
    known: list[str] = list(FINISH_REASONS)
    allowed = np.array([known.index(name) if name in known else -1 for name in (*names, "")], dtype=np.int64)
    found: np.ndarray = allowed[codes]
    place.require(
        "finish_reason",
        found >= 0,
        lambda i: "null" if codes[i] < 0 else repr(names[codes[i]]),
        " or ".join(known),
    )
    return found


def _check_distinct(request_id: np.ndarray, place: Place) -> None:
    order = np.argsort(request_id, kind="stable")
    distinct = np.ones(len(request_id), dtype=bool)
    distinct[order[1:]] = request_id[order[1:]] != request_id[order[:-1]]
    place.require("request_id", distinct, lambda i: f"{request_id[i]} again", "each request once")
