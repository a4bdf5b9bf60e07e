"""The charts of a cost table: what verifying, drafting and the other phases of a step take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from specsim.cost.cells import Cell
from specsim.cost.show import measured_contexts, milliseconds
from specsim.cost.table import CostTable
from specsim.cost.whole import Step, by_request, whole_steps
from specsim.report.charts.figure import Chart, Figure, axis, line, plain, reference
from specsim.report.palette import Style, styles_in_order

Styles: TypeAlias = dict[str, Style]
Points: TypeAlias = dict[str, dict[float, float]]
"""Seconds by position, by line."""

MOST_TICKS = 7
"""Powers of two that an axis names; beyond, every second one."""

PHASE_MEANINGS = {
    "host": "all that a plain step takes beyond the pass: scheduling, bookkeeping, on a GPU the launch",
    "plan": "choosing what to verify, and what else a speculative step takes beyond a plain one",
    "hidden": "the host's work beside drafting, of which a step is charged as much as takes longer",
    "late": "what a plain step takes longer when nothing of it was launched ahead",
    "late_draft": "the same of a step that drafts",
}
"""What the phases are that depend on the batch alone."""

COUNTED: dict[str, tuple[str, str, Callable[[Cell], str]]] = {
    "prefill": (
        "Prefill",
        "prompt tokens added to a step",
        lambda cell: f"after {cell.context} tokens" if cell.context else "at the text's beginning",
    ),
    "switch": ("Switching to a drafter", "tokens the drafter missed", lambda cell: cell.drafter or ""),
    "join": ("Requests that join", "requests that join", lambda cell: f"batch {cell.batch}"),
}
"""Phases measured by a count: title, what is counted, and which line a cell is on."""

COUNTED_CAPTIONS = {
    "prefill": "What prompt tokens add to a step that runs anyway.",
    "switch": "A drafter that was idle computes its cache for the tokens it missed.",
    "join": "What a step takes longer when requests join it.",
}


def charts(table: CostTable) -> list[Chart]:
    """Every chart that has something to show, in reading order."""
    batches = batch_styles(table)
    phases = [_counted(table, phase) for phase in COUNTED]
    every = [_verify(table, batches), _whole(table, batches), _draft(table), _by_batch(table), *phases]
    return [chart for chart in every if chart.figures]


def batch_styles(table: CostTable) -> Styles:
    """A style for each batch that was verified."""
    sizes = sorted({cell.batch for cell in table.cells if cell.phase == "verify"})
    return styles_in_order(f"batch {size}" for size in sizes)


def places(table: CostTable) -> dict[str, tuple[int, str | None]]:
    """Every context and drafter under its key in the page; a table without drafters has one place a context."""
    return {
        f"{row}/{column}": (context, drafter)
        for row, context in enumerate(measured_contexts(table))
        for column, drafter in enumerate(table.drafters or (None,))
    }


def _verify(table: CostTable, styles: Styles) -> Chart:
    """Milliseconds of the target's pass by tokens."""
    return Chart(
        name="verify",
        title="Verifying",
        caption="The target's pass over all requests' anchors and the drafts kept for it. Steps in a line are captured "
        "graphs, which are padded to the next size; elsewhere lines are straight between measured points.",
        follows="table",
        figures={
            str(index): _figure(
                _verify_traces(table, context, styles), "tokens verified, one anchor a request included", "ms"
            )
            for index, context in enumerate(measured_contexts(table))
        },
    )


def _verify_traces(table: CostTable, context: int, styles: Styles) -> list[Figure]:
    """A line a batch; captured and eager cells are not joined, for nothing runs between them."""
    limit = max(table.meta.capture_sizes, default=0)
    rows: dict[tuple[int, bool], dict[float, float]] = {}
    for cell in table.cells:
        if cell.phase == "verify" and cell.context == context and cell.tokens is not None:
            rows.setdefault((cell.batch, cell.tokens <= limit), {})[cell.tokens] = cell.seconds
    traces = []
    for (batch, captured), points in sorted(rows.items()):
        name = f"batch {batch}"
        (trace,) = _lines({name: points}, styles)
        # Every count down to the bucket before pays for a captured graph, so its step rises on the left.
        trace["line"] |= {"shape": "vh" if captured else "linear"}
        traces.append(trace)
    return traces


def _whole(table: CostTable, styles: Styles) -> Chart:
    """A whole speculative step over a plain one, where a batch was measured both drafting and verifying."""
    steps = {key: whole_steps(table, context, drafter) for key, (context, drafter) in places(table).items()}
    return Chart(
        name="whole",
        title="A whole step, in plain steps",
        caption="Drafting at the deepest measured depth, planning, verifying and the host's work, over a step that "
        "drafts nothing. Speculation pays where a request's step emits more tokens than this number says.",
        follows="place",
        figures={key: _ratios(own, styles) for key, own in steps.items() if own},
    )


def _ratios(steps: list[Step], styles: Styles) -> Figure:
    each = by_request(steps)
    rows: dict[int, list[Step]] = {}
    for step in sorted(steps, key=lambda step: (step.batch, step.tokens)):
        rows.setdefault(step.batch, []).append(step)
    traces = []
    for batch, row in rows.items():
        name = f"batch {batch}"
        at = [step.tokens / step.batch if each else step.tokens for step in row]
        texts = [f"{milliseconds(step.seconds)} ms" for step in row]
        ratios = [step.ratio for step in row]
        traces.append(line(name, styles[name], at, ratios, "%{y:.2f}× (%{customdata})", customdata=texts))
    figure = _figure(traces, "tokens verified a request" if each else "tokens verified", "times a plain step")
    figure["layout"]["shapes"] = [reference("y", 1.0)]
    return figure


def _draft(table: CostTable) -> Chart:
    """Milliseconds of drafting by batch, a line a depth."""
    depths = sorted({cell.depth or 0 for cell in table.cells if cell.phase == "draft"})
    styles = styles_in_order(f"depth {depth}" for depth in depths)
    figures = {}
    for key, (context, drafter) in places(table).items():
        cells = [cell for cell in table.cells if cell.phase == "draft" and cell.drafter == drafter]
        if cells:
            nearest = min((cell.context for cell in cells), key=lambda measured: abs(measured - context))
            own = [cell for cell in cells if cell.context == nearest]
            points = _points(own, lambda cell: f"depth {cell.depth}", lambda cell: cell.batch)
            figures[key] = _figure(_lines(points, styles), "running requests", "ms")
    return Chart(
        name="draft",
        title="Drafting",
        caption="What the drafter takes for all requests, by draft tokens a request.",
        follows="place",
        figures=figures,
        legend=styles,
    )


def _by_batch(table: CostTable) -> Chart:
    """Milliseconds of the phases that depend on the batch alone."""
    cells = [cell for cell in table.cells if cell.phase not in ("verify", "draft") and cell.tokens is None]
    points = _points(cells, lambda cell: cell.phase, lambda cell: cell.batch)
    styles = styles_in_order(points)
    return Chart(
        name="phases",
        title="Further phases of a step",
        caption=" ".join(f"{name}: {meaning}." for name, meaning in PHASE_MEANINGS.items() if name in points)
        or "Phases that depend on the batch alone.",
        follows="study",
        figures={"": _figure(_lines(points, styles), "running requests", "ms")} if cells else {},
        legend=styles,
    )


def _counted(table: CostTable, phase: str) -> Chart:
    """Milliseconds of a phase that is measured by a count."""
    title, counted, of = COUNTED[phase]
    cells = [cell for cell in table.cells if cell.phase == phase]
    points = _points(cells, of, lambda cell: cell.tokens or 0)
    styles = styles_in_order(points)
    return Chart(
        name=phase,
        title=title,
        caption=COUNTED_CAPTIONS[phase],
        follows="study",
        figures={"": _figure(_lines(points, styles), counted, "ms")} if cells else {},
        legend=styles,
    )


def _points(cells: Iterable[Cell], of: Callable[[Cell], str], at: Callable[[Cell], float]) -> Points:
    points: Points = {}
    for cell in cells:
        points.setdefault(of(cell), {})[at(cell)] = cell.seconds
    return points


def _lines(points: Points, styles: Styles) -> list[Figure]:
    return [
        line(name, styles[name], sorted(own), [1e3 * own[at] for at in sorted(own)], "%{y:,.4~r} ms")
        for name, own in points.items()
    ]


def _figure(traces: list[Figure], counted: str, unit: str) -> Figure:
    """Lines over a count that doubles at equal distances."""
    counts = [at for trace in traces for at in trace["x"]]
    vertical = axis("milliseconds" if unit == "ms" else unit, rangemode="tozero", tickformat=",.6~r")
    layout = {"xaxis": _count_axis(plain(counted), counts), "yaxis": vertical, "hovermode": "x unified"}
    return {"data": traces, "layout": layout}


def _count_axis(title: str, counts: Sequence[float]) -> Figure:
    """A logarithmic axis that names powers of two."""
    low, high = min(counts), max(counts)
    powers = range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
    named = [2**power for power in powers if low <= 2**power <= high][:: 1 if len(powers) <= MOST_TICKS else 2]
    ticks = named or [low]
    pad = 0.04 * math.log10(high / low) or 0.3
    span = [math.log10(low) - pad, math.log10(high) + pad]
    return axis(title, type="log", tickvals=ticks, ticktext=[f"{tick:,g}" for tick in ticks], range=span)
