"""Charts of what adapting is worth: against the best fixed choice, over time, and by which drafter."""

from __future__ import annotations

import math

from specsim.report.charts.figure import (
    Chart,
    Figure,
    axis,
    dot,
    line,
    numbers,
    plain,
    reference,
    rows_axis,
    rows_height,
    wrapped,
)
from specsim.report.charts.place import Styles, any_number, by_place, styled
from specsim.report.wording import signed_percent
from specsim.study.result import Cell, StudyResult


def difference_to_best_fixed(result: StudyResult, styles: Styles) -> Chart:
    """What adapting is worth against the best fixed choice in hindsight."""
    return Chart(
        name="difference",
        title="Against the best fixed choice",
        caption=f"Relative difference in {_compared(result.cells)} to the fixed policy that turned out best under this "
        "load, which nobody knows in advance; bars are 90 % intervals paired by seed. Right of the line, adapting "
        "won; a bar that crosses the line is not distinguishable.",
        follows="place",
        figures=by_place(result, lambda cells: _difference(cells, styles)),
    )


def regret(result: StudyResult, styles: Styles) -> Chart:
    """How the difference to the best fixed choice builds up over a run."""
    return Chart(
        name="regret",
        title="Cumulative regret",
        caption="Tokens behind the best fixed policy of this load, in the run of the first seed. A line that flattens "
        "has learned the right choice, one that keeps rising has not, and one below zero beats it.",
        follows="place",
        figures=by_place(result, lambda cells: _regret(cells, styles)),
    )


def arm_share(result: StudyResult, drafters: Styles) -> Chart:
    """How often each switching policy used each drafter."""
    switching = _switching(result)
    return Chart(
        name="arms",
        title="Drafters used",
        caption="Share of decode steps that used each drafter, for the policies that switch; the grey part is plain "
        "steps without a draft.",
        follows="place",
        figures=by_place(result, lambda cells: _arms(cells, drafters, switching)) if switching else {},
        legend=drafters,
    )


def _difference(cells: list[Cell], styles: Styles) -> Figure:
    shown = [(cell, style, cell.difference_to_best_fixed) for cell, style in styled(cells, styles)]
    traces, rows = [], []
    for cell, style, difference in shown:
        if difference is None or cell.policy == cell.best_fixed:
            continue
        mean, low, high = difference
        known = math.isfinite(low) and math.isfinite(high)
        between = f" ({signed_percent(low)} to {signed_percent(high)})" if known else ""
        traces.append(dot(cell.policy, style, mean, (low, high), f"{signed_percent(mean)}{between}"))
        rows.append(cell.policy)
    layout = {
        "xaxis": axis(_difference_title(cells), tickformat=".0%", nticks=6),
        "yaxis": rows_axis(rows),
        "shapes": [reference("x", 0.0)],
        "height": 20 + rows_height(rows),
    }
    return {"data": traces, "layout": layout}


def _difference_title(cells: list[Cell]) -> str:
    best = next((cell.best_fixed for cell in cells if cell.best_fixed), None)
    return f"{_compared(cells)} against" + (f"<br>{plain(best)}" if best else " the best fixed policy")


def _compared(cells: list[Cell]) -> str:
    """What speedups compare: in an open loop the arrivals set the throughput."""
    return "1 / mean latency" if any(cell.rate for cell in cells) else "throughput"


def _regret(cells: list[Cell], styles: Styles) -> Figure:
    traces = []
    for cell, style in styled(cells, styles):
        at, behind = cell.series.get("started_at", []), cell.series.get("regret_tokens", [])
        if any_number(behind):
            hover = "%{y:,.0f} tokens at %{x:.2f} s"
            traces.append(line(cell.policy, style, numbers(at), behind, hover, mode="lines"))
    layout = {
        "xaxis": axis("simulated time (s)", rangemode="tozero"),
        "yaxis": axis("tokens behind the best fixed policy", tickformat="~s"),
        "shapes": [reference("y", 0.0)],
    }
    return {"data": traces, "layout": layout}


def _switching(result: StudyResult) -> set[str]:
    """Policies that used more than one drafter under some load."""
    return {cell.policy for cell in result.cells if len(_used(cell)) > 1}


def _used(cell: Cell) -> list[str]:
    return [name for name, share in cell.arm_share.items() if share > 0 and name != "none"]


def _arms(cells: list[Cell], drafters: Styles, switching: set[str]) -> Figure:
    rows = [cell for cell in cells if cell.policy in switching]
    labels = [wrapped(cell.policy) for cell in rows]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": plain(name),
            "meta": name,
            "y": labels,
            "x": numbers(cell.arm_share.get(name, 0.0) for cell in rows),
            "marker": {"color": style.colour, "line": {"color": "var(--surface)", "width": 1}},
            "hovertemplate": f"%{{x:.1%}}<extra>{plain(name)}</extra>",
        }
        for name, style in drafters.items()
        if any(cell.arm_share.get(name, 0.0) > 0 for cell in rows)
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0.35,
        "xaxis": axis("share of decode steps", tickformat=".0%", range=[0, 1]),
        "yaxis": rows_axis(cell.policy for cell in rows),
        "height": rows_height([cell.policy for cell in rows]),
    }
    return {"data": traces, "layout": layout}
