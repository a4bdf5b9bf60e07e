"""Charts of the drafters themselves: how far their drafts survive, and what their confidence is worth."""

from __future__ import annotations

import math

from specsim.report.charts.figure import Chart, Figure, axis, line, numbers, positions_axis
from specsim.report.charts.place import Styles
from specsim.report.palette import Style
from specsim.report.wording import digits
from specsim.study.result import DrafterStatistics, StudyResult

LARGEST_MARKER = 18.0
"""Pixels of the fullest bin; areas are proportional to counts."""


def survival_by_drafter(result: StudyResult, styles: Styles) -> Chart:
    """Chance that the first k drafts are all accepted."""
    return Chart(
        name="survival",
        title="Survival by position",
        caption="Chance that a draft and all before it would be accepted, over every position of the trace. The sum "
        "over a line is the mean number of drafts accepted at a position. A step accepts fewer: steps jump over what "
        "they accept, and so meet easy positions less often.",
        follows="study",
        figures=_whole(_survival(_overall(result), styles)),
    )


def calibration(result: StudyResult, styles: Styles) -> Chart:
    """Whether a drafter's confidence means what it says."""
    return Chart(
        name="calibration",
        title="Confidence calibration",
        caption="Drafts grouped by the drafter's confidence, against the share that the target accepted; marker area "
        "is the number of drafts. On the diagonal a confidence is a probability; below it the drafter is "
        "over-confident, and a budget computed from it verifies too much.",
        follows="study",
        figures=_whole(_calibration(_overall(result), styles)),
    )


def _whole(figure: Figure) -> dict[str, Figure]:
    return {"": figure} if figure["data"] else {}


def _overall(result: StudyResult) -> list[DrafterStatistics]:
    return [statistics for statistics in result.drafters if statistics.domain == "all"]


def _survival(drafters: list[DrafterStatistics], styles: Styles) -> Figure:
    known = [drafter for drafter in drafters if any(math.isfinite(share) for share in drafter.survival)]
    traces = []
    for drafter in known:
        positions = list(range(1, len(drafter.survival) + 1))
        traces.append(line(drafter.name, styles[drafter.name], positions, drafter.survival, "%{y:.1%}"))
    layout = {
        "xaxis": positions_axis(traces),
        "yaxis": axis("position and all before it accepted", tickformat=".0%", range=[-0.03, 1.05]),
        "hovermode": "x unified",
    }
    return {"data": traces, "layout": layout}


def _calibration(drafters: list[DrafterStatistics], styles: Styles) -> Figure:
    traces = [_reliability(drafter, styles[drafter.name]) for drafter in drafters]
    traces = [trace for trace in traces if trace["x"]]
    layout = {
        "xaxis": axis("confidence of the drafter", tickformat=".0%", range=[-0.03, 1.05]),
        "yaxis": axis("drafts accepted", tickformat=".0%", range=[-0.03, 1.05]),
        "shapes": [_diagonal()],
    }
    return {"data": traces, "layout": layout}


def _reliability(drafter: DrafterStatistics, style: Style) -> Figure:
    columns = [drafter.calibration.get(name, []) for name in ("bin_confidence", "bin_accepted", "bin_count")]
    full = [(confidence, accepted, count) for confidence, accepted, count in zip(*columns, strict=True) if count > 0]
    confidences, shares, counts = ([point[part] for point in full] for part in range(3))
    quality = f"ECE {digits(drafter.ece)}, AUC {digits(drafter.auc)}"
    hover = f"%{{y:.1%}} accepted at confidence %{{x:.1%}}<br>%{{customdata:,.0f}} drafts, {quality}"
    trace = line(drafter.name, style, numbers(confidences), shares, hover, customdata=counts)
    sizes = [max(4.0, LARGEST_MARKER * math.sqrt(count / max(counts))) for count in counts]
    trace["marker"] |= {"symbol": "circle", "size": numbers(sizes), "opacity": 0.85}
    return trace


def _diagonal() -> Figure:
    return {
        "type": "line",
        "x0": 0,
        "y0": 0,
        "x1": 1,
        "y1": 1,
        "line": {"color": "var(--baseline)", "width": 1.5, "dash": "dash"},
        "layer": "between",
    }
