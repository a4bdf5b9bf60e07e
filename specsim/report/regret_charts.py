"""The charts of a regret study: lost over time, lost in all, and which arms were pulled."""

from __future__ import annotations

import math
from typing import Any

from specsim.report.charts.figure import (
    Chart,
    Figure,
    axis,
    band,
    dot,
    line,
    numbers,
    reference,
    rows_axis,
    rows_height,
    wrapped,
)
from specsim.report.palette import BASELINE, BOUND, PLAIN, Style, drafter_styles
from specsim.study.regret.result import PolicyRegret, RegretResult, Surroundings

Styles = dict[str, Style]

LOST = ("expected acceptance lost", "seconds lost, switching included")
LINE_STYLES = {
    "Lai-Robbins": Style(BOUND, "dot", "none"),
    "UCB1 bound": Style(BOUND, "dash", "none"),
    "sqrt(K T ln T)": Style(BASELINE, "longdash", "none"),
    "best fixed arm": Style(PLAIN, "dashdot", "none"),
}
LINE_MEANINGS = {
    "Lai-Robbins": "where no policy that is good on every problem can end below, as T grows",
    "UCB1 bound": "what UCB1 is proven to stay below at every T",
    "sqrt(K T ln T)": "how the regret of UCB policies grows on the hardest K arms in T steps, up to a constant",
}
"""What the lines of theory say."""


def over_time(result: RegretResult, styles: Styles) -> Chart:
    """Regret by step, on a logarithmic time axis."""
    figures = {}
    for index, surroundings in enumerate(result.environments):
        figures[f"{index}/0"] = _curves(result.of(surroundings.name), styles, surroundings, "")
        figures[f"{index}/1"] = _curves(result.of(surroundings.name), styles, surroundings, "seconds_")
    shown = {name for surroundings in result.environments for name in surroundings.lines}
    theory = "".join(f" {name}: {meaning}." for name, meaning in LINE_MEANINGS.items() if name in shown)
    return Chart(
        name="curve",
        title="Lost over time",
        caption="Mean over seeds; bands hold the middle 90 % of them. The time axis is logarithmic: a policy that pays "
        "only for what it must learn ends as a straight line, one that loses as much at every step bends upwards. "
        f"Dotted verticals are steps at which the arms change.{theory}",
        follows="place",
        figures=figures,
        legend={name: style for name, style in LINE_STYLES.items() if name in shown},
    )


def total(result: RegretResult, styles: Styles) -> Chart:
    """Regret after the last step, one policy a row."""
    figures = {}
    for index, surroundings in enumerate(result.environments):
        own = result.of(surroundings.name)
        seconds = [(found.curve["seconds_low"][-1], found.curve["seconds_high"][-1]) for found in own]
        figures[f"{index}/0"] = _rows(
            [(found.policy, found.regret, found.regret_band) for found in own], styles, 0, surroundings.fixed_regret
        )
        figures[f"{index}/1"] = _rows(
            [(found.policy, found.seconds_regret, ends) for found, ends in zip(own, seconds, strict=True)], styles, 1
        )
    return Chart(
        name="total",
        title="Lost in all",
        caption="Mean over seeds; bars reach from the 5 % to the 95 % quantile of the seeds. The dashed line is what "
        "the best fixed arm, known in hindsight, would lose.",
        follows="place",
        figures=figures,
    )


def arm_share(result: RegretResult) -> Chart:
    """Share of the steps by arm."""
    arms = list(dict.fromkeys(arm for surroundings in result.environments for arm in surroundings.arms))
    styles = {name: style for name, style in drafter_styles(arms).items() if name in arms}
    return Chart(
        name="arms",
        title="Arms pulled",
        caption="Share of all steps and seeds.",
        follows="table",
        figures={
            str(index): _shares(result.of(surroundings.name), surroundings, styles)
            for index, surroundings in enumerate(result.environments)
        },
        legend=styles,
    )


def _curves(own: list[PolicyRegret], styles: Styles, surroundings: Surroundings, prefix: str) -> Figure:
    traces: list[Figure] = []
    for found in own:
        low, high = found.curve[f"{prefix}low"], found.curve[f"{prefix}high"]
        traces.append(band(found.policy, styles[found.policy], found.curve["step"], low, high))
    for found in own:
        mean = found.curve[f"{prefix}mean"]
        traces.append(
            line(found.policy, styles[found.policy], found.curve["step"], mean, "%{y:,.4~r}", mode="lines", opacity=1)
        )
    if not prefix:
        steps, tops = own[0].curve["step"], max(max(found.curve["high"]) for found in own)
        for name, values in surroundings.lines.items():
            inside = [value if value <= 1.3 * tops else math.nan for value in values]
            traces.append(line(name, LINE_STYLES[name], steps, inside, "%{y:,.4~r}", mode="lines"))
    last = math.log10(surroundings.num_steps)
    layout: dict[str, Any] = {
        "xaxis": axis("steps (log scale)", type="log", dtick=1, range=[0, last], tickformat=",d"),
        "yaxis": axis(LOST[1 if prefix else 0], rangemode="tozero", tickformat=",.6~r"),
        "shapes": [reference("x", step) | {"line": _thin()} for step in surroundings.changes],
        "hovermode": "x unified",
    }
    return {"data": traces, "layout": layout}


def _thin() -> dict[str, Any]:
    return {"color": "var(--baseline)", "width": 1, "dash": "dot"}


def _rows(
    own: list[tuple[str, float, tuple[float, float]]], styles: Styles, measure: int, fixed: float | None = None
) -> Figure:
    ranked = sorted(own, key=lambda row: row[1])
    names = [policy for policy, _, _ in ranked]
    traces = [dot(policy, styles[policy], mean, ends, "%{x:,.4~r}") for policy, mean, ends in ranked]
    layout = {
        "xaxis": axis(LOST[measure], rangemode="tozero", tickformat=",.6~r"),
        "yaxis": rows_axis(names),
        "shapes": [reference("x", fixed)] if fixed else [],
        "height": rows_height(names),
    }
    return {"data": traces, "layout": layout}


def _shares(own: list[PolicyRegret], surroundings: Surroundings, styles: Styles) -> Figure:
    names = [found.policy for found in own]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": arm,
            "meta": arm,
            "y": [wrapped(name) for name in names],
            "x": numbers(found.arm_share[arm] for found in own),
            "marker": {"color": styles[arm].colour},
            "hovertemplate": f"%{{x:.1%}}<extra>{arm}</extra>",
        }
        for arm in surroundings.arms
    ]
    layout = {
        "barmode": "stack",
        "xaxis": axis("share of steps", tickformat=".0%", range=[0, 1]),
        "yaxis": rows_axis(names),
        "height": rows_height(names),
    }
    return {"data": traces, "layout": layout}
