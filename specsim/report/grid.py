"""The answer as a grid: speedup over autoregressive decoding by policy and load, one grid a cost table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from specsim.study.result import Cell, StudyResult

Verdict: TypeAlias = Literal["best", "slower", "tie", ""]

VERDICTS: dict[str, str] = {
    "best": "highest mean of the policies that can be run and keep the output law",
    "slower": "slower than autoregressive: the whole 90 % interval lies below 1",
    "tie": "not distinguishable from autoregressive: 1 lies inside the 90 % interval",
}
TAGS: dict[str, str] = {
    "lossy": "the output law is not the target's",
    "bound": "knows in advance what will be accepted: a bound, not a choice",
}


@dataclass(frozen=True, order=True)
class Load:
    """What a column stands for: a closed loop's concurrency, or an open loop's requests a second.

    batch   running requests (0: open loop)
    rate    requests a second (0: closed loop)
    """

    batch: int
    rate: float

    @property
    def label(self) -> str:
        """As a column heading: `32`, or `2.5/s`."""
        return f"{self.rate:g}/s" if self.rate else str(self.batch)

    @property
    def phrase(self) -> str:
        """In a sentence: `batch 32`, or `2.5 requests/s`."""
        return f"{self.rate:g} requests/s" if self.rate else f"batch {self.batch}"

    @property
    def amount(self) -> float:
        """As a position on an axis."""
        return self.rate or float(self.batch)


@dataclass(frozen=True)
class Entry:
    """One cell of the grid.

    cell        what the study found there
    speedup     mean throughput / autoregressive throughput (NaN: unknown)
    verdict     what the number means in a word; empty when it simply is faster
    """

    cell: Cell
    speedup: float
    verdict: Verdict


@dataclass(frozen=True)
class Row:
    """One policy over all loads.

    policy      its label
    tags        keys of TAGS
    reason      why it is lossy (empty: it is not)
    entries     one a load; None where the study has no such cell
    """

    policy: str
    tags: tuple[str, ...]
    reason: str
    entries: tuple[Entry | None, ...]


@dataclass(frozen=True)
class Grid:
    """All policies on one cost table.

    table   the cost table's name
    loads   the columns
    rows    in the order the policies were given
    """

    table: str
    loads: tuple[Load, ...]
    rows: tuple[Row, ...]


def load_of(cell: Cell) -> Load:
    """The column a cell belongs to."""
    return Load(cell.batch, cell.rate)


def loads_of(cells: list[Cell]) -> tuple[Load, ...]:
    """Every load that occurs, ascending."""
    return tuple(sorted({load_of(cell) for cell in cells}))


def tables_of(result: StudyResult) -> tuple[str, ...]:
    """Every cost table that occurs, in order."""
    return tuple(dict.fromkeys(cell.table for cell in result.cells))


def policies_of(result: StudyResult) -> tuple[str, ...]:
    """Every policy that occurs, in order."""
    return tuple(dict.fromkeys(cell.policy for cell in result.cells))


def is_open_loop(result: StudyResult) -> bool:
    """Whether requests arrive at a rate of their own; speedups compare latencies then, not throughputs."""
    return any(cell.rate for cell in result.cells)


def is_baseline(policy: str) -> bool:
    """Whether a policy is autoregressive decoding, which the others are compared with."""
    return policy.partition("@")[0].partition(":")[0] == "autoregressive"


def grids(result: StudyResult) -> list[Grid]:
    """One grid a cost table, in the order of the study."""
    return [_grid(table, [cell for cell in result.cells if cell.table == table]) for table in tables_of(result)]


def words_of(shown: list[Grid]) -> dict[str, str]:
    """The verdicts and tags that occur, with what they mean; words that don't occur need no explanation."""
    rows = [row for grid in shown for row in grid.rows]
    used = {entry.verdict for row in rows for entry in row.entries if entry} | {tag for row in rows for tag in row.tags}
    return {word: meaning for word, meaning in (VERDICTS | TAGS).items() if word in used}


def reasons(shown: list[Grid]) -> dict[str, str]:
    """Why each lossy policy is lossy, by its label."""
    return {row.policy: row.reason for grid in shown for row in grid.rows if row.reason}


def any_interval(shown: list[Grid]) -> bool:
    """Whether a speedup has an interval; with one seed none has."""
    cells = [entry.cell for grid in shown for row in grid.rows for entry in row.entries if entry]
    return any(math.isfinite(end) for cell in cells if not is_baseline(cell.policy) for end in cell.speedup_interval)


def definitions(result: StudyResult) -> dict[str, str]:
    """What the policies that go by a name of their own are, by that name; a label that is the text needs none."""
    return {label: text for label, text in result.policies.items() if label != text}


def _grid(table: str, cells: list[Cell]) -> Grid:
    loads = loads_of(cells)
    best = {load: _best([cell for cell in cells if load_of(cell) == load]) for load in loads}
    by_place = {(cell.policy, load_of(cell)): cell for cell in cells}
    rows = []
    for policy in dict.fromkeys(cell.policy for cell in cells):
        own = [by_place.get((policy, load)) for load in loads]
        rows.append(_row(policy, [_entry(cell, best[load_of(cell)]) if cell else None for cell in own]))
    return Grid(table, loads, tuple(rows))


def _row(policy: str, entries: list[Entry | None]) -> Row:
    cells = [entry.cell for entry in entries if entry]
    reason = next((cell.lossy_reason for cell in cells if cell.lossy_reason), "")
    tags = [
        name for name, holds in (("lossy", bool(reason)), ("bound", any(cell.clairvoyant for cell in cells))) if holds
    ]
    return Row(policy, tuple(tags), reason, tuple(entries))


def _entry(cell: Cell, best: Cell | None) -> Entry:
    return Entry(cell, _speedup(cell), _verdict(cell, cell is best))


def _verdict(cell: Cell, is_best: bool) -> Verdict:
    if is_baseline(cell.policy):
        return "best" if is_best else ""
    if cell.slower_than_autoregressive:
        return "slower"
    if cell.not_distinguishable:
        return "tie"
    return "best" if is_best else ""


def _best(cells: list[Cell]) -> Cell | None:
    """The fastest policy that can be run and keeps the output law; the first of equals."""
    eligible = [
        cell for cell in cells if not cell.clairvoyant and not cell.lossy_reason and math.isfinite(_speedup(cell))
    ]
    return max(eligible, key=_speedup, default=None)


def _speedup(cell: Cell) -> float:
    return cell.values.get("speedup", math.nan)
