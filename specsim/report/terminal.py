"""A study in the terminal: the grid of speedups, then what was found, in words. Fits 80 columns, needs no colour."""

from __future__ import annotations

import math
import re
import textwrap
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specsim.report.grid import (
    Grid,
    Load,
    Row,
    any_interval,
    definitions,
    grids,
    is_baseline,
    policies_of,
    reasons,
    tables_of,
    words_of,
)
from specsim.report.labels import lines
from specsim.report.sentences import by_table, gathered
from specsim.report.wording import NOTHING, digits, half_width
from specsim.study.result import StudyResult

CELL_WIDTH = 8
"""Columns of one number with its interval: `0.87±.02`."""
POLICY_WIDTH = 26
"""Columns that policy labels are left before loads go to a further table."""
STYLES = {"best": "bold green", "slower": "bold red", "tie": "yellow", "": ""}


def render(result: StudyResult, console: Console, report: Path | None = None) -> None:
    """Print the study.

    result      what was found
    console     where to; its width is kept to
    report      where the HTML report lies, told at the end (None: there is none)
    """
    console.print(Text(result.title, style="bold"))
    findings = by_table(result.findings, tables_of(result), policies_of(result))
    _print_sentences(findings[""], "", console)
    for grid in grids(result):
        console.print()
        console.print(Text(f"Speedup over autoregressive, cost table {grid.table}", style="bold"))
        for loads in _chunks(grid, console.width):
            console.print(_table(grid, loads, console.width))
        _print_sentences(findings[grid.table], "", console)
    _print_legend(result, console)
    _print_definitions(result, console)
    _print_sentences(gathered(result.notes), "Notes", console)
    if report is not None:
        console.print()
        console.print(Text(f"Report: {report}"), soft_wrap=True)


def _chunks(grid: Grid, width: int) -> list[list[int]]:
    """The columns that fit beside the labels, as few tables as possible and as even as can be."""
    labels = max((len(_label(row)) for row in grid.rows), default=0)
    fit = max(1, (width - min(labels, POLICY_WIDTH)) // (CELL_WIDTH + 1))
    num_chunks = max(1, math.ceil(len(grid.loads) / fit))
    size = math.ceil(len(grid.loads) / num_chunks)
    columns = list(range(len(grid.loads)))
    return [columns[start : start + size] for start in range(0, len(columns), size)]


def _table(grid: Grid, columns: list[int], width: int) -> Table:
    room = max(width - len(columns) * (CELL_WIDTH + 1), 1)
    table = Table(box=None, padding=(0, 0, 0, 1), pad_edge=False, header_style="bold")
    table.add_column(_heading(grid.loads), overflow="fold", max_width=room)
    for column in columns:
        table.add_column(grid.loads[column].label, justify="right", width=CELL_WIDTH, no_wrap=True)
    for row in grid.rows:
        table.add_row(_policy(row, room), *(_number(row, column) for column in columns))
    return table


def _heading(loads: tuple[Load, ...]) -> str:
    return "requests/s" if any(load.rate for load in loads) else "batch size"


def _label(row: Row) -> str:
    return " ".join([row.policy, *(f"({tag})" for tag in row.tags)])


def _policy(row: Row, width: int) -> Text:
    """The label in lines that break where a reader would, tags after it."""
    text = Text("\n".join(lines(row.policy, width)))
    for tag in row.tags:
        text.append(f" ({tag})", style="yellow")
    return text


def _number(row: Row, column: int) -> Text:
    """Speedup and half its interval on one line, the verdict as a word on the next."""
    entry = row.entries[column]
    if entry is None or not math.isfinite(entry.speedup):
        return Text(NOTHING, style="dim")
    text = Text(digits(entry.speedup), style=STYLES[entry.verdict])
    if not is_baseline(row.policy):
        text.append(half_width(entry.cell.speedup_interval), style="dim")
    if entry.verdict:
        text.append(f"\n{entry.verdict}")
    return text


def _print_legend(result: StudyResult, console: Console) -> None:
    """Explain the words that occur, and no others."""
    shown = grids(result)
    explained = ["±: half of the 90 % interval, seeds paired"] if any_interval(shown) else []
    explained += [f"{word}: {meaning}" for word, meaning in words_of(shown).items()]
    explained += [
        reason if reason.startswith(policy) else f"{policy} is lossy: {reason}"
        for policy, reason in reasons(shown).items()
    ]
    if explained:
        console.print()
    for line in explained:
        console.print(Text(line, style="dim", overflow="fold"))


def _print_definitions(result: StudyResult, console: Console) -> None:
    """What short names stand for, so that any row can be run again by itself."""
    named = definitions(result)
    if not named:
        return
    console.print()
    console.print(Text("Names, as --policy takes them", style="bold"))
    width = max(len(label) for label in named)
    room = console.width - width - 2
    for label, text in named.items():
        if room < POLICY_WIDTH:
            told = [*lines(label, console.width), *(f"  {line}" for line in lines(text, max(console.width - 2, 1)))]
        else:
            told = [f"{'' if at else label:<{width}}  {line}" for at, line in enumerate(lines(text, room))]
        console.print(Text("\n".join(told), style="dim"))


def _print_sentences(sentences: list[str], heading: str, console: Console) -> None:
    """A list under a heading; a number and its percent sign stay on one line."""
    if not sentences:
        return
    console.print()
    if heading:
        console.print(Text(heading, style="bold"))
    for sentence in sentences:
        unbroken = re.sub(r"(?<=\d) %", "\u00a0%", sentence)
        filled = textwrap.fill(
            unbroken, console.width, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
        )
        console.print(Text(filled.replace("\u00a0", " ")), soft_wrap=True)
