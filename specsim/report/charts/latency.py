"""The chart of inter-token latency."""

from __future__ import annotations

import math

from specsim.report.charts.figure import Chart, Figure, axis, line, numbers
from specsim.report.charts.place import Styles, any_number, by_place, styled
from specsim.study.result import Cell, StudyResult

QUANTILES = (0.5, 0.9, 0.99, 0.999, 0.9999)


def latency(result: StudyResult, styles: Styles) -> Chart:
    """Quantiles of the time between tokens."""
    return Chart(
        name="latency",
        title="Inter-token latency",
        caption="Time between output tokens at each quantile; to the right the tail is stretched. A step that emits n "
        "tokens counts as n gaps of a n-th of its duration. Lower is better.",
        follows="place",
        figures=by_place(result, lambda cells: _latency(cells, styles)),
    )


def _latency(cells: list[Cell], styles: Styles) -> Figure:
    traces = []
    for cell, style in styled(cells, styles):
        pairs = zip(cell.latency.get("fraction", []), cell.latency.get("itl_seconds", []), strict=True)
        points = [(fraction, seconds) for fraction, seconds in pairs if 0 <= fraction < 1]
        if not any_number([seconds for _, seconds in points]):
            continue
        odds = numbers(1 / (1 - fraction) for fraction, _ in points)
        shares = [f"{100 * fraction:.4g} %" for fraction, _ in points]
        hover = "%{customdata} of gaps within %{y:.2f} ms"
        gaps = [1e3 * seconds for _, seconds in points]
        traces.append(line(cell.policy, style, odds, gaps, hover, mode="lines", customdata=shares))
    layout = {"xaxis": _quantile_axis(traces), "yaxis": axis("inter-token latency (ms)", rangemode="tozero")}
    return {"data": traces, "layout": layout}


def _quantile_axis(traces: list[Figure]) -> Figure:
    """Quantiles with each further nine as far apart as the last, as latency histograms are plotted."""
    largest = max((at for trace in traces for at in trace["x"] if at is not None), default=100.0)
    shown = [share for share in QUANTILES if 1 / (1 - share) <= largest * 1.001] or [0.5]
    labels = [f"{100 * share:g} %" for share in shown]
    ticks = [float(f"{1 / (1 - share):.6g}") for share in shown]
    span = [0.0, math.log10(max(largest, 2.0)) + 0.12]
    return axis("quantile", type="log", tickvals=ticks, ticktext=labels, range=span)
