"""What must hold of a trace's rows: each fault is one line naming file, column, row and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specsim.core import DrafterSpec
from specsim.errors import InputError
from specsim.trace.blocks import BlockRows, Ragged
from specsim.trace.schema import SCORE_COLUMNS


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows stand, for errors.

    path       the file
    first_row  index in the file of the first of them
    """

    path: Path
    first_row: int = 0

    def require(self, column: str, holds: np.ndarray, found: Callable[[int], object], allowed: str) -> None:
        """Raise InputError at the first row where `holds` [N] bool is False; `found` says what stands there."""
        if not holds.all():
            row = int(np.argmin(holds))
            raise InputError(
                f"{self.path}: column {column!r}, row {self.first_row + row}: {found(row)}; allowed: {allowed}"
            )


def check_rows(rows: BlockRows, drafters: tuple[DrafterSpec, ...], num_output_tokens: np.ndarray) -> None:
    """Raise InputError at the first fault that a row shows by itself.

    num_output_tokens  [N] int64, output length of each row's request
    """
    place = Place(rows.path, rows.first_row)
    _check_keys(rows, drafters, num_output_tokens, place)
    _check_counts(rows, drafters, num_output_tokens, place)
    for name, ragged in rows.lists.items():
        _check_list(rows, name, ragged, place)
    for arm, spec in enumerate(drafters):
        _check_scores_are_there(rows, rows.drafter == arm, spec, place)


def check_resolved(rows: BlockRows, num_output_tokens: np.ndarray) -> None:
    """Raise InputError unless every row knows how many drafts the target accepts, as exact replay needs."""
    expected = np.minimum(rows.num_drafts, num_output_tokens - rows.position)
    Place(rows.path, rows.first_row).require(
        "num_verified",
        rows.num_verified == expected,
        lambda i: f"{rows.num_verified[i]}, a censored observation",
        "in a position-indexed trace, min(num_drafts, num_output_tokens - position)",
    )


def _check_keys(
    rows: BlockRows, drafters: tuple[DrafterSpec, ...], num_output_tokens: np.ndarray, place: Place
) -> None:
    for column, nulls in rows.nulls.items():
        place.require(column, ~nulls, lambda i: "null", "a value in every row")
    place.require(
        "drafter",
        rows.drafter >= 0,
        lambda i: f"{rows.drafter_name[rows.drafter_code[i]]!r} is not a drafter of the manifest",
        ", ".join(spec.name for spec in drafters),
    )
    place.require(
        "position",
        (rows.position >= 0) & (rows.position < num_output_tokens),
        lambda i: f"{rows.position[i]} in an output of {num_output_tokens[i]} tokens",
        "0 to num_output_tokens - 1",
    )


def _check_counts(
    rows: BlockRows, drafters: tuple[DrafterSpec, ...], num_output_tokens: np.ndarray, place: Place
) -> None:
    max_depth = np.array([spec.max_depth for spec in drafters])[rows.drafter]
    limits = (
        ("num_drafts", rows.num_drafts, max_depth, "0 to the drafter's max_depth"),
        ("num_accepted", rows.num_accepted, rows.num_drafts, "0 to num_drafts"),
        ("num_verified", rows.num_verified, rows.num_drafts, "0 to num_drafts"),
        ("num_verified", rows.num_verified, num_output_tokens - rows.position, "0 to num_output_tokens - position"),
        ("num_accepted", rows.num_accepted, rows.num_verified, "0 to num_verified"),
    )
    for column, counts, limit, allowed in limits:
        check_counts(place, column, counts, limit, allowed)


def check_counts(place: Place, column: str, counts: np.ndarray, limit: np.ndarray, allowed: str) -> None:
    """Raise InputError unless every one of `counts` is in [0, limit]."""
    place.require(
        column,
        (counts >= 0) & (counts <= limit),
        lambda i: f"{counts[i]}" if counts[i] < 0 else f"{counts[i]}, above {limit[i]}",
        allowed,
    )


@dataclass(frozen=True, slots=True)
class _Entries:
    """The entries of a list column, flat.

    values  [M]
    end     [N] int64, entry after the last of each row
    length  [N] int64, entries of each row, 0 where null
    """

    values: np.ndarray
    end: np.ndarray
    length: np.ndarray

    @classmethod
    def of(cls, ragged: Ragged) -> _Entries:
        length = np.where(ragged.there, ragged.length, 0)
        end = np.cumsum(length)
        shift = (ragged.start - (end - length))[length > 0]
        if len(shift) == 0 or (shift == shift[0]).all():  # one piece, as written: no copy
            first = int(shift[0]) if len(shift) else 0
            return cls(ragged.values[first : first + int(length.sum())], end, length)
        return cls(ragged.values[np.repeat(ragged.start - (end - length), length) + np.arange(end[-1])], end, length)

    def require(self, place: Place, column: str, holds: np.ndarray, allowed: str) -> None:
        if not holds.all():
            at = int(np.argmin(holds))
            row = int(np.searchsorted(self.end, at, side="right"))
            draft = at - int(self.end[row] - self.length[row]) + 1
            raise InputError(
                f"{place.path}: column {column!r}, row {place.first_row + row}: {self.values[at]} at draft {draft}; "
                f"allowed: {allowed}"
            )


def _check_list(rows: BlockRows, name: str, ragged: Ragged, place: Place) -> None:
    place.require(
        name,
        ~ragged.there | (ragged.length == rows.num_drafts),
        lambda i: f"{ragged.length[i]} entries for {rows.num_drafts[i]} drafts",
        "a list of num_drafts entries",
    )
    entries = _Entries.of(ragged)
    holds, allowed = _allowed_values(name, entries.values)
    entries.require(place, name, holds, allowed)
    if name == "survival":
        holds = np.append(True, entries.values[1:] <= entries.values[:-1])[: len(entries.values)]
        holds[(entries.end - entries.length)[entries.length > 0]] = True  # the first of a row has none before it
        entries.require(place, name, holds, "survival that does not rise with depth")


def _allowed_values(name: str, values: np.ndarray) -> tuple[np.ndarray, str]:
    if name == "draft_token_ids":
        return values >= 0, "token ids, at least 0"
    if name == "margin":
        return np.isfinite(values) & (values >= 0.0), "finite, at least 0"
    return (values >= 0.0) & (values <= 1.0), "in [0, 1]"  # NaN compares false


def _check_scores_are_there(rows: BlockRows, mine: np.ndarray, spec: DrafterSpec, place: Place) -> None:
    for score in spec.scores:
        column = SCORE_COLUMNS[score]
        there = rows.lists[column].there if column in rows.lists else np.zeros(len(rows), dtype=bool)
        if score == "max_prob" and spec.law == "point_mass" and not there[mine].any():
            continue  # served by `confidence`
        message = f"no value, though drafter {spec.name!r} offers {score}"
        place.require(column, there | ~mine, lambda i, message=message: message, "a list in every row of that drafter")  # type: ignore[misc]
