"""What a chart is, and the marks and axes charts share. Figures are plain Plotly JSON; the page draws them.

Colours are CSS variables (`var(--hue-0)`), which the page resolves for light, dark and print.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from specsim.report.labels import lines
from specsim.report.palette import Style

Figure: TypeAlias = dict[str, Any]
"""`data` and `layout` of a Plotly figure."""

LINE_HEIGHT = 15
"""Pixels of one line of a label."""


@dataclass(frozen=True)
class Chart:
    """One chart of the report, drawn anew for each choice of the reader.

    name        identifier in the page
    title       what it shows
    caption     how to read it
    follows     `table`: one figure a cost table; `place`: one a cost table and load; `study`: only one
    figures     by place: `0/3` is the first table's fourth load, `0` the first table, empty the whole study
    legend      names and styles of marks that the section's legend does not explain
    """

    name: str
    title: str
    caption: str
    follows: Literal["study", "table", "place"]
    figures: dict[str, Figure]
    legend: dict[str, Style] = field(default_factory=dict)


def plain(text: str) -> str:
    """A string from a person, as Plotly must be given it: it would read `<b>` as a tag."""
    return html.escape(text, quote=False)


def wrapped(label: str, width: int = 22) -> str:
    """A policy's label in lines, for an axis."""
    return "<br>".join(plain(line) for line in lines(label, width))


def numbers(values: Iterable[float]) -> list[float | None]:
    """Numbers for the page: five significant digits, None for what is not a number."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values]


def line(key: str, style: Style, x: Sequence[Any], y: Sequence[float], hover: str, **more: Any) -> Figure:
    """A line with markers in a policy's or drafter's style.

    key     label that the legend switches on and off
    style   how it is drawn
    x, y    its points
    hover   Plotly hover template
    more    further attributes of the trace
    """
    trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(key),
        "meta": key,
        "x": list(x),
        "y": numbers(y),
        "line": {"color": style.colour, "dash": style.dash, "width": 2},
        "marker": {"color": style.colour, "symbol": style.symbol, "size": 7},
        "hovertemplate": f"{hover}<extra>{plain(key)}</extra>",
    }
    return trace | more


def band(key: str, style: Style, x: Sequence[Any], low: Sequence[float], high: Sequence[float]) -> Figure:
    """An interval as a shaded band, left out where an end is unknown."""
    known = [(at, a, b) for at, a, b in zip(x, low, high, strict=True) if math.isfinite(a) and math.isfinite(b)]
    forth = [at for at, _, _ in known]
    return {
        "type": "scatter",
        "mode": "lines",
        "meta": key,
        "x": forth + forth[::-1],
        "y": numbers([b for _, _, b in known] + [a for _, a, _ in known][::-1]),
        "fill": "toself",
        "fillcolor": style.band,
        "line": {"width": 0, "color": style.band},
        "hoverinfo": "skip",
    }


def dot(key: str, style: Style, value: float, interval: tuple[float, float] | None, hover: str) -> Figure:
    """One policy as a row: a marker with its interval."""
    trace = line(key, style, numbers([value]), [0.0], hover)
    trace |= {"y": [wrapped(key)], "mode": "markers"}
    trace["marker"] = trace["marker"] | {"size": 9}
    if interval is not None and all(math.isfinite(end) for end in interval):
        trace["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": numbers([max(0.0, interval[1] - value)]),
            "arrayminus": numbers([max(0.0, value - interval[0])]),
            "color": style.colour,
            "thickness": 2,
            "width": 5,
        }
    return trace


def axis(title: str, **more: Any) -> Figure:
    """An axis with its title, unit included."""
    return {"title": {"text": title}} | more


def log2_axis(title: str, values: Sequence[float], labels: Sequence[str]) -> Figure:
    """A logarithmic axis whose ticks are the values measured."""
    low, high = math.log10(min(values)), math.log10(max(values))
    pad = 0.04 * (high - low) or 0.3
    return axis(title, type="log", tickvals=list(values), ticktext=list(labels), range=[low - pad, high + pad])


def tokens_axis(title: str) -> Figure:
    """A logarithmic axis of tokens a second: 1, 2 and 5 of each power of ten, evenly spaced ticks within one."""
    return axis(title, type="log", nticks=3, tickformat="~s")


def positions_axis(traces: Sequence[Figure]) -> Figure:
    """Draft positions from 1: every one has a grid line or its neighbour has, so that labels have room."""
    depth = max((len(trace["x"]) for trace in traces), default=1)
    step = 1 if depth <= 8 else 2 if depth <= 16 else 8
    ticks = list(range(1, depth + 1, step)) if step < 8 else [1, *range(step, depth + 1, step)]
    return axis("draft position", tickvals=ticks, tickangle=0, range=[0.4, depth + 0.6])


def rows_axis(labels: Iterable[str]) -> Figure:
    """A vertical axis with one policy a row, the first on top."""
    ticks = [wrapped(label) for label in labels]
    return {"type": "category", "categoryorder": "array", "categoryarray": ticks[::-1], "automargin": True}


def rows_height(labels: Sequence[str]) -> int:
    """Pixels of a chart that has policies as rows, so that the longest label stays within its row."""
    most = max((wrapped(label).count("<br>") + 1 for label in labels), default=1)
    return 110 + len(labels) * (LINE_HEIGHT * max(2, most) + 6)


def reference(axis_name: Literal["x", "y"], at: float) -> Figure:
    """A dashed line across the chart, such as `as fast as autoregressive`."""
    other = "y" if axis_name == "x" else "x"
    return {
        "type": "line",
        f"{other}ref": "paper",
        f"{other}0": 0,
        f"{other}1": 1,
        f"{axis_name}0": at,
        f"{axis_name}1": at,
        "line": {"color": "var(--baseline)", "width": 1.5, "dash": "dash"},
        "layer": "between",
    }
