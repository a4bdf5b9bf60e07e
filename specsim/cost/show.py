"""A cost table for the terminal: milliseconds by batch and tokens, each with its ratio to a plain step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from specsim.cost.cells import Cell
from specsim.cost.table import CostTable
from specsim.cost.whole import Step, by_request, deepest, verify_steps, whole_steps

Point = TypeVar("Point", Cell, Step)

COLUMNS = 9
"""Most value columns of one printed table, so that it fits 80 characters beside a batch size."""

NAMED_COLUMNS = 5
"""As many beside a drafter's name."""

SHOWN_CAPTURE_SIZES = 12

NOT_STATED = "not stated"
"""What a manifest says where its source says nothing."""


def render(table: CostTable, context: int | None = None, drafter: str | None = None) -> Iterator[RenderableType]:
    """What to print, in order.

    table    the table
    context  which measured context to show (None: the smallest)
    drafter  whose whole step to show (None: the only one's)
    """
    contexts = measured_contexts(table)
    shown = contexts[0] if context is None else context
    whole = table.drafters[0] if drafter is None and len(table.drafters) == 1 else drafter
    yield Text(f"{table.name} ({table.meta.label})", style="bold")
    yield _about(table)
    yield from _verify(table, shown)
    if whole is not None:
        yield from _whole_step(table, shown, whole)
    if len(contexts) > 1:
        yield Text(f"\ncontext {shown} shown; measured: {', '.join(map(str, contexts))} (--context N)", style="dim")
    yield from _drafts(table, shown)
    yield from _others(table)
    yield Text("\nnotes", style="bold")
    yield _listed((*table.meta.remarks, *table.notes))


def measured_contexts(table: CostTable) -> list[int]:
    """Contexts with verify cells, rising."""
    return sorted({cell.context for cell in table.cells if cell.phase == "verify"})


def _about(table: CostTable) -> Table:
    meta, ranges = table.meta, table.ranges
    sizes = meta.capture_sizes
    listed = ", ".join(map(str, sizes[:SHOWN_CAPTURE_SIZES])) + (" ..." if len(sizes) > SHOWN_CAPTURE_SIZES else "")
    versions = ", ".join(f"{name} {version}" for name, version in meta.versions.items())
    rows = {
        "model": f"{meta.model}, {meta.dtype}" if meta.dtype != NOT_STATED else f"{meta.model}, dtype not stated",
        "hardware": meta.hardware,
        "engine": meta.engine + (f" ({versions})" if versions else ""),
        "source": f"{meta.source}; {meta.date}",
        "licence": meta.licence,
        "method": meta.method,
        "captured": f"{len(sizes)} sizes, largest {sizes[-1]}: {listed}"
        if sizes
        else "no sizes declared: cost is interpolated",
        "valid": ", ".join(f"{axis} {low} to {high}" for axis, (low, high) in ranges.model_dump().items()),
    }
    about = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    about.add_column(style="bold")
    about.add_column(overflow="fold")
    for key, value in rows.items():
        if value:
            about.add_row(key, Text(value))
    return about


def _verify(table: CostTable, context: int) -> Iterator[RenderableType]:
    yield from _against_plain("verify", verify_steps(table, context))


def _whole_step(table: CostTable, context: int, drafter: str) -> Iterator[RenderableType]:
    """At every measured budget of the deepest measured block."""
    what = f"whole step with {deepest(table, drafter)} drafts a request by {drafter}"
    steps = whole_steps(table, context, drafter)
    if steps:
        yield from _against_plain(what, steps)
    else:
        yield Text(f"\n{what}: no batch was measured both drafting and verifying, at context {context}", style="bold")


def _against_plain(what: str, steps: list[Step]) -> Iterator[RenderableType]:
    """Milliseconds by batch and tokens, and their ratio to a plain step."""
    each = by_request(steps)

    def entry(step: Step) -> str:
        ratio = "" if math.isnan(step.ratio) else f"\n{step.ratio:.2f}x"
        return f"{milliseconds(step.seconds)}{ratio}"

    unit = "tokens a request" if each else "tokens"
    title = f"{what}: ms by batch and verified {unit}; ratio to a plain step"
    yield from _grids(title, steps, lambda step: step.tokens / step.batch if each else step.tokens, entry)


def _drafts(table: CostTable, context: int) -> Iterator[RenderableType]:
    for drafter in table.drafters:
        cells = [cell for cell in table.cells if cell.phase == "draft" and cell.drafter == drafter]
        contexts = sorted({cell.context for cell in cells})
        at = context if context in contexts else contexts[0]
        shown = [cell for cell in cells if cell.context == at]
        title = f"draft by {drafter}: ms by batch and depth"
        yield from _grids(title, shown, lambda cell: cell.depth or 0, _milliseconds)


def _others(table: CostTable) -> Iterator[RenderableType]:
    cells = [cell for cell in table.cells if cell.phase not in ("verify", "draft")]
    by_batch = [cell for cell in cells if cell.tokens is None]
    if by_batch:
        title = "other phases: ms by batch"
        yield from _grids(title, by_batch, lambda cell: cell.batch, _milliseconds, ("phase", lambda cell: cell.phase))
    for phase, title, heading, row in OTHERS:
        own = [cell for cell in cells if cell.phase == phase]
        if own:
            yield from _grids(title, own, lambda cell: cell.tokens or 0, _milliseconds, (heading, row))


OTHERS: tuple[tuple[str, str, str, Callable[[Cell], int | str]], ...] = (
    ("prefill", "prefill: ms by tokens before the prompt and prompt tokens", "after", lambda cell: cell.context),
    ("switch", "switch: ms by drafter and tokens it missed", "drafter", lambda cell: cell.drafter or ""),
    ("join", "join: ms by batch and requests that join", "batch", lambda cell: cell.batch),
)
"""Phases measured by a count: their title, what their rows are, and which row a cell is in."""


def milliseconds(seconds: float) -> str:
    """Four significant digits from one millisecond on, three decimals below: `7.880`, `117.5`, `0.590`."""
    value = 1e3 * seconds
    if value == 0:
        return "0"
    if value < 1:
        return f"{value:.3f}" if value >= 0.0005 else "<.001"
    return f"{value:,.{max(3 - math.floor(math.log10(value)), 0)}f}"


def _milliseconds(cell: Cell) -> str:
    return milliseconds(cell.seconds)


def _grids(
    title: str,
    cells: Sequence[Point],
    column: Callable[[Point], float],
    entry: Callable[[Point], str],
    rows: tuple[str, Callable[[Point], int | str]] = ("batch", lambda cell: cell.batch),
) -> Iterator[RenderableType]:
    """Cells as tables of at most COLUMNS columns, as even as can be; what a row is, and which one a cell is in."""
    heading, row = rows
    entries = {(row(cell), column(cell)): entry(cell) for cell in cells}
    named = any(isinstance(name, str) for name, _ in entries)
    names = list(dict.fromkeys(name for name, _ in entries)) if named else sorted({name for name, _ in entries})
    columns = sorted({at for _, at in entries})
    num_tables = -(-len(columns) // (NAMED_COLUMNS if named else COLUMNS))
    size = -(-len(columns) // num_tables)
    yield Text(f"\n{title}", style="bold")
    for start in range(0, len(columns), size):
        part = columns[start : start + size]
        grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        grid.add_column(heading, justify="left" if named else "right", overflow="fold")
        for at in part:
            grid.add_column(f"{at:g}", justify="right", min_width=6, no_wrap=True)
        for name in names:
            values = [entries.get((name, at), "") for at in part]
            if any(values):
                grid.add_row(str(name), *values)
        yield grid


def _listed(sentences: Sequence[str]) -> Table:
    """Sentences behind dashes, their further lines below the first."""
    bullets = Table.grid(padding=(0, 1, 0, 0))
    bullets.add_column(width=1)
    bullets.add_column(overflow="fold")
    for sentence in sentences:
        bullets.add_row("-", Text(sentence))
    return bullets
