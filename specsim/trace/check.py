"""What must hold of a trace's rows: each fault is one line naming file, column, row and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from specsim.core import DrafterSpec
from specsim.errors import InputError
from specsim.trace.blocks import BlockRows, Ragged
from specsim.trace.manifest import TraceKind
from specsim.trace.schema import SCORE_COLUMNS


def require(
    holds: np.ndarray, path: Path, column: str, first_row: int, found: Callable[[int], object], allowed: str
) -> None:
    """Raise InputError at the first row where `holds` is False.

    holds      [N] bool
    found      what stands in row i of `holds`
    first_row  index in the file of row 0 of `holds`
    """
    if holds.all():
        return
    row = int(np.argmin(holds))
    raise InputError(f"{path}: column {column!r}, row {first_row + row}: {found(row)}; allowed: {allowed}")


def check_rows(rows: BlockRows, drafters: tuple[DrafterSpec, ...], num_output_tokens: np.ndarray) -> None:
    """Raise InputError at the first fault that a row shows by itself.

    num_output_tokens  [N] int64, output length of each row's request
    """
    _check_keys(rows, drafters, num_output_tokens)
    _check_counts(rows, drafters, num_output_tokens)
    for name, ragged in rows.lists.items():
        _check_list(rows, name, ragged)
    _check_scores_are_there(rows, drafters)


def check_resolved(rows: BlockRows, num_output_tokens: np.ndarray) -> None:
    """Raise InputError unless every row knows how many drafts the target accepts, as exact replay needs."""
    expected = np.minimum(rows.num_drafts, num_output_tokens - rows.position)
    require(
        rows.num_verified == expected,
        rows.path,
        "num_verified",
        rows.first_row,
        lambda i: f"{rows.num_verified[i]}, a censored observation",
        "in a position-indexed trace, min(num_drafts, num_output_tokens - position)",
    )


def _check_keys(rows: BlockRows, drafters: tuple[DrafterSpec, ...], num_output_tokens: np.ndarray) -> None:
    names = ", ".join(spec.name for spec in drafters)
    for column, nulls in rows.nulls.items():
        require(~nulls, rows.path, column, rows.first_row, lambda i: "null", "a value in every row")
    require(
        rows.drafter >= 0,
        rows.path,
        "drafter",
        rows.first_row,
        lambda i: f"{rows.drafter_name[rows.drafter_code[i]]!r} is not a drafter of the manifest",
        names,
    )
    require(
        (rows.position >= 0) & (rows.position < num_output_tokens),
        rows.path,
        "position",
        rows.first_row,
        lambda i: f"{rows.position[i]} in an output of {num_output_tokens[i]} tokens",
        "0 to num_output_tokens - 1",
    )


def _check_counts(rows: BlockRows, drafters: tuple[DrafterSpec, ...], num_output_tokens: np.ndarray) -> None:
    max_depth = np.array([spec.max_depth for spec in drafters])[rows.drafter]
    left = num_output_tokens - rows.position
    limits = (
        ("num_drafts", max_depth, "0 to the drafter's max_depth"),
        ("num_accepted", rows.num_drafts, "0 to num_drafts"),
        ("num_verified", rows.num_drafts, "0 to num_drafts"),
        ("num_verified", left, "0 to num_output_tokens - position"),
        ("num_accepted", rows.num_verified, "0 to num_verified"),
    )
    for column, limit, allowed in limits:
        _check_count(rows, column, limit, allowed)


def _check_count(rows: BlockRows, column: str, limit: np.ndarray, allowed: str) -> None:
    counts = getattr(rows, column)
    require(
        (counts >= 0) & (counts <= limit),
        rows.path,
        column,
        rows.first_row,
        lambda i: f"{counts[i]}" if counts[i] < 0 else f"{counts[i]}, above {limit[i]}",
        allowed,
    )


def _check_list(rows: BlockRows, name: str, ragged: Ragged) -> None:
    require(
        ~ragged.there | (ragged.length == rows.num_drafts),
        rows.path,
        name,
        rows.first_row,
        lambda i: f"{ragged.length[i]} entries for {rows.num_drafts[i]} drafts",
        "a list of num_drafts entries",
    )
    length = np.where(ragged.there, ragged.length, 0)
    owner = np.repeat(np.arange(len(rows)), length)
    inside = np.arange(len(owner)) - (np.cumsum(length) - length)[owner]
    values = ragged.values[ragged.start[owner] + inside]
    good, allowed = _good_values(name, values)
    _require_entries(rows, name, owner, inside, values, good, allowed)
    if name == "survival":
        rising = np.zeros(len(values), dtype=bool)
        rising[1:] = (owner[1:] == owner[:-1]) & (values[1:] > values[:-1])
        _require_entries(rows, name, owner, inside, values, ~rising, "survival that does not rise with depth")


def _good_values(name: str, values: np.ndarray) -> tuple[np.ndarray, str]:
    if name == "draft_token_ids":
        return values >= 0, "token ids, at least 0"
    if name == "margin":
        return np.isfinite(values) & (values >= 0.0), "finite, at least 0"
    return (values >= 0.0) & (values <= 1.0), "in [0, 1]"  # NaN compares false


def _require_entries(
    rows: BlockRows,
    name: str,
    owner: np.ndarray,
    inside: np.ndarray,
    values: np.ndarray,
    good: np.ndarray,
    allowed: str,
) -> None:
    if good.all():
        return
    entry = int(np.argmin(good))
    row = rows.first_row + int(owner[entry])
    raise InputError(
        f"{rows.path}: column {name!r}, row {row}: {values[entry]} at draft {inside[entry] + 1}; allowed: {allowed}"
    )


def _check_scores_are_there(rows: BlockRows, drafters: tuple[DrafterSpec, ...]) -> None:
    for arm, spec in enumerate(drafters):
        mine = rows.drafter == arm
        for score in spec.scores:
            column = SCORE_COLUMNS[score]
            there = rows.lists[column].there if column in rows.lists else np.zeros(len(rows), dtype=bool)
            if score == "max_prob" and spec.law == "point_mass" and not there[mine].any():
                continue  # served by `confidence`
            require(
                there | ~mine,
                rows.path,
                column,
                rows.first_row,
                lambda i: f"no value, though drafter {spec.name!r} offers {score}",  # noqa: B023
                "a list in every row of that drafter",
            )


class KeyChecker:
    """Checks the keys of each request as its rows go by: no duplicate, and none missing where all are due.

    Rows of a request lie together, so only one request is held at a time.
    """

    def __init__(self, kind: TraceKind, drafters: tuple[DrafterSpec, ...]) -> None:
        self.kind = kind
        self.drafters = drafters
        self.held: list[tuple[BlockRows, np.ndarray]] = []

    def finish_request(self, request_id: int, num_output_tokens: int) -> None:
        """Judge the rows held, all of `request_id`, and let go of them."""
        held, self.held = self.held, []
        if not held:
            keys = np.zeros(0, dtype=np.int64)
        else:
            keys = np.concatenate([r.drafter[i] * num_output_tokens + r.position[i] for r, i in held])
        order = np.argsort(keys, kind="stable")
        repeated = np.zeros(len(keys), dtype=bool)
        repeated[order[1:]] = keys[order[1:]] == keys[order[:-1]]
        if repeated.any():
            raise self._duplicate(held, int(np.argmax(repeated)), request_id)
        if self.kind == "position_indexed" and len(keys) < num_output_tokens * len(self.drafters):
            raise self._missing(keys, request_id, num_output_tokens)

    def _duplicate(self, held: list[tuple[BlockRows, np.ndarray]], row: int, request_id: int) -> InputError:
        for rows, taken in held:
            if row < len(taken):
                break
            row -= len(taken)
        at = int(taken[row])
        name = self.drafters[int(rows.drafter[at])].name
        return InputError(
            f"{rows.path}: columns request_id, position, drafter, row {rows.first_row + at}: "
            f"({request_id}, {rows.position[at]}, {name}) appears twice; allowed: each key once"
        )

    def _missing(self, keys: np.ndarray, request_id: int, num_output_tokens: int) -> InputError:
        due = np.arange(num_output_tokens * len(self.drafters))
        first = int(np.setdiff1d(due, keys, assume_unique=True)[0])
        name, position = self.drafters[first // num_output_tokens].name, first % num_output_tokens
        return InputError(
            f"blocks: request {request_id} has no row at position {position} for drafter {name!r}; "
            f"allowed: a position-indexed trace has a row at every position for every drafter"
        )
