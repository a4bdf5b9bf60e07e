"""A cost table for the terminal: milliseconds by batch and tokens, each with its ratio to a plain step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from specsim.cost.cells import Cell
from specsim.cost.table import CostTable
from specsim.cost.verify import bucket_paid

COLUMNS = 8
"""Most value columns of one printed table, so that it fits 80 characters."""

SHOWN_CAPTURE_SIZES = 12


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
        yield Text(f"context {shown} shown; measured: {', '.join(map(str, contexts))} (--context N)\n", style="dim")
    yield from _drafts(table, shown)
    yield from _others(table)
    yield Text("\nnotes", style="bold")
    for remark in (*table.meta.remarks, *table.notes):
        yield Text(f"- {remark}")


def measured_contexts(table: CostTable) -> list[int]:
    """Contexts with verify cells, rising."""
    return sorted({cell.context for cell in table.cells if cell.phase == "verify"})


def _about(table: CostTable) -> Table:
    meta, ranges = table.meta, table.ranges
    sizes = meta.capture_sizes
    listed = ", ".join(map(str, sizes[:SHOWN_CAPTURE_SIZES])) + (" ..." if len(sizes) > SHOWN_CAPTURE_SIZES else "")
    versions = ", ".join(f"{name} {version}" for name, version in meta.versions.items())
    rows = {
        "model": f"{meta.model}, {meta.dtype}",
        "hardware": meta.hardware,
        "engine": meta.engine + (f" ({versions})" if versions else ""),
        "source": f"{meta.source}; {meta.date}",
        "licence": meta.licence,
        "method": meta.method,
        "captured": f"{len(sizes)} sizes, largest {sizes[-1]}: {listed}"
        if sizes
        else "no sizes declared: cost is interpolated",
        "valid": " ".join(f"{axis} {low}-{high}" for axis, (low, high) in ranges.model_dump().items()),
    }
    about = Table(
        title=f"{meta.name} ({meta.label})", title_justify="left", show_header=False, box=None, pad_edge=False
    )
    about.add_column(style="bold")
    about.add_column(overflow="fold")
    for key, value in rows.items():
        if value:
            about.add_row(key, Text(value))
    return about


def _verify(table: CostTable, context: int) -> Iterator[RenderableType]:
    cells = [cell for cell in table.cells if cell.phase == "verify" and cell.context == context]
    yield from _against_plain("verify", table, cells, {})


def _whole_step(table: CostTable, context: int, drafter: str) -> Iterator[RenderableType]:
    """Draft, plan, verify and host together, at every measured budget of the deepest measured block."""
    drafts = [cell for cell in table.cells if cell.phase == "draft" and cell.drafter == drafter]
    nearest = min((cell.context for cell in drafts), key=lambda measured: abs(measured - context))
    depth = max(cell.depth or 0 for cell in drafts)
    added = {cell.batch: cell.seconds for cell in drafts if cell.context == nearest and cell.depth == depth}
    for cell in table.cells:
        if cell.phase in ("plan", "host") and cell.batch in added:
            added[cell.batch] += cell.seconds
    cells = [c for c in table.cells if c.phase == "verify" and c.context == context and c.batch in added]
    yield from _against_plain(f"whole step with {depth} drafts a request by {drafter}", table, cells, added)


def _against_plain(what: str, table: CostTable, cells: list[Cell], added: dict[int, float]) -> Iterator[RenderableType]:
    """Verify cells with `added` seconds by batch, and their ratio to a plain step."""
    host = {cell.batch: cell.seconds for cell in table.cells if cell.phase == "host"} if added else {}
    smallest = {batch: bucket_paid(batch, table.meta.capture_sizes) for batch in {cell.batch for cell in cells}}
    plain = {c.batch: c.seconds + host.get(c.batch, 0.0) for c in cells if c.tokens == smallest[c.batch]}
    by_request = len({(cell.tokens or 0) / cell.batch for cell in cells}) < len({cell.tokens for cell in cells})

    def column(cell: Cell) -> float:
        return (cell.tokens or 0) / cell.batch if by_request else cell.tokens or 0

    def entry(cell: Cell) -> str:
        seconds = cell.seconds + added.get(cell.batch, 0.0)
        ratio = f"\n{seconds / plain[cell.batch]:.2f}x" if plain.get(cell.batch) else ""
        return f"{seconds * 1e3:.4g}{ratio}"

    unit = "tokens a request" if by_request else "tokens"
    yield from _grids(f"{what}: ms by batch and verified {unit}; ratio to a plain step", cells, column, entry)


def _drafts(table: CostTable, context: int) -> Iterator[RenderableType]:
    for drafter in table.drafters:
        cells = [cell for cell in table.cells if cell.phase == "draft" and cell.drafter == drafter]
        contexts = sorted({cell.context for cell in cells})
        at = context if context in contexts else contexts[0]
        shown = [cell for cell in cells if cell.context == at]
        title = f"draft by {drafter}: ms by batch and depth"
        yield from _grids(title, shown, lambda cell: cell.depth or 0, lambda cell: f"{cell.seconds * 1e3:.4g}")


def _others(table: CostTable) -> Iterator[RenderableType]:
    cells = [cell for cell in table.cells if cell.phase not in ("verify", "draft")]
    if not cells:
        return
    yield Text("\nother phases", style="bold")
    others = Table("phase", "of", "at", "ms")
    for cell in sorted(cells, key=lambda c: (c.phase, c.drafter or "", c.batch, c.tokens or 0, c.context)):
        others.add_row(cell.phase, cell.drafter or "", _place(cell), f"{cell.seconds * 1e3:.4g}")
    yield others


def _place(cell: Cell) -> str:
    """Where a cell that is neither of verifying nor of drafting was measured."""
    if cell.tokens is None:
        return f"batch {cell.batch}"
    if cell.phase == "join":
        return f"{cell.tokens} request{'s' if cell.tokens > 1 else ''} at batch {cell.batch}"
    return f"{cell.tokens} tokens" + (f" after {cell.context}" if cell.context else "")


def _grids(
    title: str, cells: Sequence[Cell], column: Callable[[Cell], float], entry: Callable[[Cell], str]
) -> Iterator[RenderableType]:
    """Cells as tables of at most COLUMNS columns, one row a batch."""
    entries = {(cell.batch, column(cell)): entry(cell) for cell in cells}
    batches = sorted({batch for batch, _ in entries})
    columns = sorted({at for _, at in entries})
    yield Text(f"\n{title}", style="bold")
    for start in range(0, len(columns), COLUMNS):
        part = columns[start : start + COLUMNS]
        grid = Table()
        grid.add_column("batch", justify="right")
        for at in part:
            grid.add_column(f"{at:g}", justify="right")
        for batch in batches:
            row = [entries.get((batch, at), "") for at in part]
            if any(row):
                grid.add_row(str(batch), *row)
        yield grid
