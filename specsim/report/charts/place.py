"""Figures that follow both choices of the reader, one a cost table and load."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from specsim.report.charts.figure import Figure
from specsim.report.grid import Load, is_baseline, load_of, tables_of
from specsim.report.palette import Style
from specsim.study.result import Cell, StudyResult

Styles = dict[str, Style]
Draw = Callable[[list[Cell]], Figure]


def places_of(result: StudyResult) -> dict[str, tuple[str, Load]]:
    """Every table and load under its key in the page: `0/3` is the first table's fourth load of the study."""
    loads = sorted({load_of(cell) for cell in result.cells})
    present = {(cell.table, load_of(cell)) for cell in result.cells}
    return {
        f"{row}/{column}": (table, load)
        for row, table in enumerate(tables_of(result))
        for column, load in enumerate(loads)
        if (table, load) in present
    }


def by_place(result: StudyResult, draw: Draw) -> dict[str, Figure]:
    """A figure for each table and load; those without a mark are left out."""
    cells: dict[tuple[str, Load], list[Cell]] = {}
    for cell in result.cells:
        cells.setdefault((cell.table, load_of(cell)), []).append(cell)
    figures = {key: draw(cells[place]) for key, place in places_of(result).items()}
    return {key: figure for key, figure in figures.items() if figure["data"]}


def speculating(styles: Styles) -> Styles:
    """All policies but the baseline, which drafts nothing."""
    return {policy: style for policy, style in styles.items() if not is_baseline(policy)}


def styled(cells: list[Cell], styles: Styles) -> list[tuple[Cell, Style]]:
    """The cells of policies that have a style, in order."""
    return [(cell, styles[cell.policy]) for cell in cells if cell.policy in styles]


def any_number(values: Iterable[float]) -> bool:
    """Whether there is anything to draw."""
    return any(math.isfinite(value) for value in values)
