"""The requests of a trace, as numpy columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from specsim.errors import InputError
from specsim.telemetry import FINISH_REASONS
from specsim.trace.check import require
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


def read_requests(path: Path) -> Requests:
    """The requests table at `path`, every value checked.

    Raises InputError naming column, row and allowed values.
    """
    with reading(path):
        table = pq.read_table(path, memory_map=True, page_checksum_verification=True, partitioning=None)
        check_columns(table.schema, REQUEST_COLUMNS, path)
        numbers = {
            name: integers(table.column(name)) for name in ("request_id", "num_prompt_tokens", "num_output_tokens")
        }
        domain, domains = strings(table.column("domain"))
        reasons, reason_names = strings(table.column("finish_reason"))
        arrival_at, arrives = floats(table.column("arrival_at"))
        none = (np.zeros(len(table), dtype=np.int64), np.zeros(len(table), dtype=bool))
        prompt_id, has_prompt_id = integers(table.column("prompt_id")) if "prompt_id" in table.column_names else none
    if len(domain) == 0:
        raise InputError(f"{path}: no rows; allowed: at least one request")
    for name, (values, there) in numbers.items():
        least = 0 if name == "request_id" else 1
        require(there, path, name, 0, lambda i: "null", "a value in every row")
        require(values >= least, path, name, 0, lambda i: values[i], f"at least {least}")  # noqa: B023
    _check_distinct(numbers["request_id"][0], path)
    require(domain >= 0, path, "domain", 0, lambda i: "null", "a name in every row")
    finish_reason = _finish_codes(reasons, reason_names, path)
    good = ~arrives | (np.isfinite(arrival_at) & (arrival_at >= 0.0))
    require(good, path, "arrival_at", 0, lambda i: arrival_at[i], "null, or seconds that are finite and at least 0")
    return Requests(
        request_id=numbers["request_id"][0],
        domain=domain,
        domains=domains,
        num_prompt_tokens=numbers["num_prompt_tokens"][0],
        num_output_tokens=numbers["num_output_tokens"][0],
        finish_reason=finish_reason,
        arrival_at=np.where(arrives, arrival_at, np.nan),
        prompt_id=prompt_id,
        has_prompt_id=has_prompt_id,
    )


def _finish_codes(codes: np.ndarray, names: tuple[str, ...], path: Path) -> np.ndarray:
    known = np.array([FINISH_REASONS.index(name) if name in FINISH_REASONS else -1 for name in names] + [-1])
    found = known[codes]
    require(
        found >= 0,
        path,
        "finish_reason",
        0,
        lambda i: "null" if codes[i] < 0 else repr(names[codes[i]]),
        " or ".join(FINISH_REASONS),
    )
    return found.astype(np.int64)


def _check_distinct(request_id: np.ndarray, path: Path) -> None:
    order = np.argsort(request_id, kind="stable")
    distinct = np.ones(len(request_id), dtype=bool)
    distinct[order[1:]] = request_id[order[1:]] != request_id[order[:-1]]
    require(distinct, path, "request_id", 0, lambda i: f"{request_id[i]} again", "each request once")
