"""Validation of a whole trace, streamed: one row group in memory at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specsim.core import DrafterSpec
from specsim.errors import InputError
from specsim.trace.blocks import BlockRows
from specsim.trace.manifest import TraceKind
from specsim.trace.requests import Requests
from specsim.trace.table import BlocksTable


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """What a valid trace was found to hold.

    path          the trace's folder
    num_files     files whose sha256 was compared
    num_requests  requests
    num_rows      rows of the blocks table
    num_steps     rows of the steps table, 0 without one
    """

    path: Path
    num_files: int
    num_requests: int
    num_rows: int
    num_steps: int


def check_blocks(table: BlocksTable, requests: Requests) -> int:
    """Check every row of the blocks `table` of `requests` and return how many there are.

    Raises InputError at the first fault.
    """
    keys = KeyChecker(table.manifest.kind, table.specs, table.paths[-1])
    index, ids, tokens = table.index, requests.request_id, requests.num_output_tokens
    current = -1
    for group in range(len(index.groups)):
        rows = table.decode(group)
        for run in range(*np.searchsorted(index.group, [group, group + 1]).tolist()):
            if current >= 0 and int(index.request[run]) != current:
                keys.finish_request(int(ids[current]), int(tokens[current]))
            current = int(index.request[run])
            keys.hold(rows, np.arange(index.start[run], index.stop[run]))
    if current >= 0:
        keys.finish_request(int(ids[current]), int(tokens[current]))
    for request in np.flatnonzero(index.count == 0).tolist():
        keys.finish_request(int(ids[request]), int(tokens[request]))
    return sum(group.num_rows for group in index.groups)


class KeyChecker:
    """Checks the keys of each request as its rows go by: no duplicate, and none missing where all are due.

    Rows of a request lie together, so only one request is held at a time.
    """

    def __init__(self, kind: TraceKind, drafters: Sequence[DrafterSpec], path: Path) -> None:
        """Check a trace of `kind` with `drafters`; `path` names the blocks file when a row is missing."""
        self.kind = kind
        self.drafters = drafters
        self.path = path
        self.held: list[tuple[BlockRows, np.ndarray]] = []

    def hold(self, rows: BlockRows, taken: np.ndarray) -> None:
        """Note that `rows` [taken] belong to the request that is read now."""
        self.held.append((rows, taken))

    def finish_request(self, request_id: int, num_output_tokens: int) -> None:
        """Judge the rows held, all of `request_id`, and let go of them."""
        held, self.held = self.held, []
        keys = [rows.drafter[taken] * num_output_tokens + rows.position[taken] for rows, taken in held]
        self._check_distinct(np.concatenate(keys or [np.zeros(0, dtype=np.int64)]), held, request_id)
        found = sum(len(part) for part in keys)
        if self.kind == "position_indexed" and found < num_output_tokens * len(self.drafters):
            raise self._missing(np.concatenate(keys or [[]]), request_id, num_output_tokens)

    def _check_distinct(self, keys: np.ndarray, held: list[tuple[BlockRows, np.ndarray]], request_id: int) -> None:
        order = np.argsort(keys, kind="stable")
        again = order[1:][keys[order[1:]] == keys[order[:-1]]]
        if len(again) == 0:
            return
        at = int(again.min())
        for rows, taken in held:
            if at < len(taken):
                row = int(taken[at])
                name = self.drafters[int(rows.drafter[row])].name
                raise InputError(
                    f"{rows.path}: columns 'request_id', 'position', 'drafter', row {rows.first_row + row}: "
                    f"({request_id}, {rows.position[row]}, {name!r}) appears twice; allowed: each key once"
                )
            at -= len(taken)

    def _missing(self, keys: np.ndarray, request_id: int, num_output_tokens: int) -> InputError:
        due = np.arange(num_output_tokens * len(self.drafters))
        first = int(np.setdiff1d(due, keys, assume_unique=True)[0])
        name, position = self.drafters[first // num_output_tokens].name, first % num_output_tokens
        return InputError(
            f"{self.path}: column 'position': request {request_id} has no row at position {position} for drafter "
            f"{name!r}; allowed: a position-indexed trace has one at every position for every drafter"
        )
