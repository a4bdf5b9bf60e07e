"""Charts of what a policy verifies: its budget over time, and how deep it goes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from specsim.report.charts.figure import Chart, Figure, axis, line, numbers, positions_axis
from specsim.report.charts.place import Styles, any_number, by_place, speculating, styled
from specsim.report.wording import percent
from specsim.study.result import Cell, StudyResult

SMOOTHING = 15
"""Points that the moving mean of a series covers, of at most 300."""
RARE = 0.005
"""Share of request-steps below which the acceptance of a position is not shown."""
ACCEPTED = "position and all before it accepted"


def budget_over_time(result: StudyResult, styles: Styles) -> Chart:
    """How much of what was drafted each policy verified, step by step."""
    shown = speculating(styles)
    return Chart(
        name="budget",
        title="Chosen budget over time",
        caption="Verified / drafted tokens in the run of the first seed. Thin lines are means over equally many steps "
        f"each, thick lines the moving mean of {SMOOTHING} such points; a gap is a stretch without drafting. "
        "Compare batch sizes: a policy that adapts to load verifies less as the batch grows.",
        follows="place",
        figures=by_place(result, lambda cells: _budget(cells, shown)),
    )


def verification_by_position(result: StudyResult, styles: Styles) -> Chart:
    """How deep each policy verifies."""
    shown = speculating(styles)
    return Chart(
        name="verification",
        title="Verification by position",
        caption="Share of speculative request-steps in which a draft position was verified at all. Fixed depth "
        "falls from all to nothing at its depth; a policy that ranks drafts falls off gently.",
        follows="place",
        figures=by_place(result, lambda cells: _positions(cells, shown, _verification, "position verified")),
    )


def acceptance_by_position(result: StudyResult, styles: Styles) -> Chart:
    """Chance that verification reaches and passes each draft position."""
    shown = speculating(styles)
    return Chart(
        name="acceptance",
        title="Acceptance by position",
        caption="Of the request-steps that verified a draft position, the share in which it and all drafts before it "
        "were accepted. A policy that prunes well lies above fixed depth, because it verifies what survives. "
        f"Positions verified in less than {percent(RARE)} of those steps are left out: too few to tell.",
        follows="place",
        figures=by_place(result, lambda cells: _positions(cells, shown, _acceptance, ACCEPTED)),
    )


def _budget(cells: list[Cell], styles: Styles) -> Figure:
    thin, thick = [], []
    for cell, style in styled(cells, styles):
        at, ratio = cell.series.get("started_at", []), cell.series.get("budget_ratio", [])
        if not any_number(ratio):
            continue
        stroke = {"color": style.colour, "width": 1}
        thin.append(
            line(cell.policy, style, numbers(at), ratio, "", mode="lines", line=stroke, opacity=0.15, hoverinfo="skip")
        )
        hover = "%{y:.1%} at %{x:.2f} s"
        thick.append(line(cell.policy, style, numbers(at), _moving_mean(ratio), hover, mode="lines"))
    layout = {
        "xaxis": axis("simulated time (s)", rangemode="tozero"),
        "yaxis": axis("drafted tokens verified", tickformat=".0%", range=[-0.03, 1.05]),
    }
    return {"data": thin + thick, "layout": layout}


def _moving_mean(values: list[float]) -> list[float]:
    """Centred moving mean that skips what is not a number."""
    series = np.asarray(values, dtype=np.float64)
    known = np.isfinite(series)
    window = np.ones(min(SMOOTHING, len(series)))
    sums = np.convolve(np.where(known, series, 0.0), window, mode="same")
    counts = np.convolve(known.astype(np.float64), window, mode="same")
    return [float(total / count) if count else math.nan for total, count in zip(sums, counts, strict=True)]


def _verification(cell: Cell) -> list[float]:
    return cell.verified_by_position


def _acceptance(cell: Cell) -> list[float]:
    """Survival where positions were verified often enough to say."""
    pairs = zip(cell.acceptance_by_position, cell.verified_by_position, strict=True)
    return [accepted if verified >= RARE else math.nan for accepted, verified in pairs]


def _positions(cells: list[Cell], styles: Styles, share: Callable[[Cell], list[float]], title: str) -> Figure:
    traces = []
    for cell, style in styled(cells, styles):
        shares = share(cell)
        if any_number(shares):
            positions = list(range(1, len(shares) + 1))
            traces.append(line(cell.policy, style, positions, shares, "%{y:.1%}"))
    layout = {
        "xaxis": positions_axis(traces),
        "yaxis": axis(title, tickformat=".0%", range=[-0.03, 1.05]),
        "hovermode": "x unified",
    }
    return {"data": traces, "layout": layout}
