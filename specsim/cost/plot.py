"""A cost table as a figure: what verifying and drafting take, one line a batch."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from specsim.cost.table import CostTable

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
"""Line styles, one a context."""


def figure(table: CostTable) -> Any:
    """A Plotly figure of the verify phase by tokens and the draft phase by batch."""
    drafted = bool(table.drafters)
    titles = ["verify", "draft"][: 1 + drafted]
    plot = make_subplots(rows=1, cols=1 + drafted, subplot_titles=titles, column_widths=[0.65, 0.35][: 1 + drafted])
    plot.add_traces([_line(**line) for line in _verify_lines(table)], rows=1, cols=1)
    if drafted:
        plot.add_traces([_line(**line) for line in _draft_lines(table)], rows=1, cols=2)
        plot.update_xaxes(title="running requests", row=1, col=2)
        plot.update_yaxes(title="milliseconds", rangemode="tozero", row=1, col=2)
    plot.update_xaxes(title="verified tokens, anchors included", row=1, col=1)
    plot.update_xaxes(type="log", tickvals=[2**power for power in range(20)])
    plot.update_yaxes(title="milliseconds", rangemode="tozero", row=1, col=1)
    heading = f"{table.name} ({table.meta.label}): {table.meta.model} on {table.meta.hardware}"
    return plot.update_layout(title=heading, template="plotly_white", hovermode="closest", height=560)


def _line(points: dict[int, float], name: str, **style: Any) -> Any:
    x = sorted(points)
    return go.Scatter(
        x=x,
        y=[points[at] * 1e3 for at in x],
        name=name,
        mode="lines+markers",
        line=style,
        hovertemplate="%{x}: %{y:.4g} ms",
    )


def _verify_lines(table: CostTable) -> list[dict[str, Any]]:
    limit = max(table.meta.capture_sizes, default=0)
    rows: dict[tuple[int, int, bool], dict[int, float]] = {}
    for cell in table.cells:
        if cell.phase == "verify" and cell.tokens is not None:
            rows.setdefault((cell.context, cell.batch, cell.tokens <= limit), {})[cell.tokens] = cell.seconds
    contexts = sorted({context for context, _, _ in rows})
    colors = _colors(sorted({batch for _, batch, _ in rows}))
    return [
        {
            "points": points,
            "name": f"batch {batch}"
            + (f", context {context}" if len(contexts) > 1 else "")
            + (", eager" if limit and not captured else ""),
            "color": colors[batch],
            "dash": DASHES[contexts.index(context) % len(DASHES)],
            # Every count down to the bucket before pays for a captured graph, so its step rises on the left.
            "shape": "vh" if captured else "linear",
        }
        for (context, batch, captured), points in sorted(rows.items())
    ]


def _draft_lines(table: CostTable) -> list[dict[str, Any]]:
    rows: dict[tuple[str, int, int], dict[int, float]] = {}
    for cell in table.cells:
        if cell.phase == "draft":
            rows.setdefault((cell.drafter or "", cell.depth or 0, cell.context), {})[cell.batch] = cell.seconds
    smallest = min(context for _, _, context in rows)
    return [
        {"points": points, "name": f"{drafter}, depth {depth}"}
        for (drafter, depth, context), points in sorted(rows.items())
        if context == smallest
    ]


def _colors(batches: list[int]) -> dict[int, str]:
    places = [index / max(len(batches) - 1, 1) * 0.85 for index in range(len(batches))]
    return dict(zip(batches, sample_colorscale("Viridis", places), strict=True))
