"""Charts over load: speedup, throughput, and throughput against the speed one request sees."""

from __future__ import annotations

import math
from collections.abc import Callable

from specsim.report.charts.figure import (
    Chart,
    Figure,
    axis,
    band,
    dot,
    line,
    log2_axis,
    numbers,
    reference,
    rows_axis,
    rows_height,
    tokens_axis,
)
from specsim.report.charts.place import Styles
from specsim.report.grid import Load, is_baseline, is_open_loop, load_of, loads_of, tables_of
from specsim.report.palette import Style
from specsim.report.wording import span
from specsim.study.result import Cell, StudyResult


def speedup_by_load(result: StudyResult, styles: Styles) -> Chart:
    """Throughput over that of autoregressive decoding, with its interval."""
    shown = {policy: style for policy, style in styles.items() if not is_baseline(policy)}
    at_one = "right of the dashed line speculation pays; left of it"
    at_many = "above the dashed line speculation pays; below it"
    return Chart(
        name="speedup",
        title=_title("Speedup", result),
        caption=f"{_compared(result)} under the same load: "
        f"{at_one if _at_one_load(result) else at_many}, it is slower than not speculating. "
        f"{'Bars' if _at_one_load(result) else 'Bands'} are 90 % bootstrap intervals, paired by seed.",
        follows="table",
        figures=_by_table(result, lambda cells: _speedup(cells, shown)),
    )


def throughput_by_load(result: StudyResult, styles: Styles) -> Chart:
    """Tokens a second of the whole engine."""
    scale = "; both axes are logarithmic, so a constant factor is a constant distance"
    return Chart(
        name="throughput",
        title=_title("Throughput", result),
        caption=f"Output tokens a second over all running requests{'' if _at_one_load(result) else scale}.",
        follows="table",
        figures=_by_table(result, lambda cells: _throughput(cells, styles)),
    )


def throughput_by_interactivity(result: StudyResult, styles: Styles) -> Chart:
    """The trade between what the engine delivers and what one reader sees; a single load has none."""
    return Chart(
        name="interactivity",
        title="Throughput against interactivity",
        caption="Each line joins one policy's loads: more load moves a point up (the engine delivers more) and left "
        "(each request is slower). Further up and to the right is better at equal load or equal speed. What one "
        "request sees is 1 / the median time per output token (TPOT p50).",
        follows="table",
        figures={} if _at_one_load(result) else _by_table(result, lambda cells: _interactivity(cells, styles)),
    )


def _compared(result: StudyResult) -> str:
    """What a speedup compares: in an open loop the arrivals set the throughput, so it is latency there."""
    if is_open_loop(result):
        return "Mean latency, arrival to last token, of autoregressive decoding over that of the policy"
    return "Token throughput over that of autoregressive decoding"


def _title(measure: str, result: StudyResult) -> str:
    if _at_one_load(result):
        return f"{measure} at {loads_of(result.cells)[0].phrase}"
    return f"{measure} by {'request rate' if is_open_loop(result) else 'batch size'}"


def _at_one_load(result: StudyResult) -> bool:
    return len(loads_of(result.cells)) == 1


def _by_table(result: StudyResult, draw: Callable[[list[Cell]], Figure]) -> dict[str, Figure]:
    return {
        str(index): draw([cell for cell in result.cells if cell.table == table])
        for index, table in enumerate(tables_of(result))
    }


def _load_axis(loads: tuple[Load, ...]) -> Figure:
    title = "requests a second" if any(load.rate for load in loads) else "batch size (running requests)"
    return log2_axis(title, [load.amount for load in loads], [load.label for load in loads])


def _by_policy(cells: list[Cell], styles: Styles) -> list[tuple[str, Style, list[Cell]]]:
    """The cells of each policy that has a style, by ascending load."""
    grouped = [
        (policy, style, sorted((cell for cell in cells if cell.policy == policy), key=load_of))
        for policy, style in styles.items()
    ]
    return [(policy, style, own) for policy, style, own in grouped if own]


def _speedup(cells: list[Cell], styles: Styles) -> Figure:
    groups = _by_policy(cells, styles)
    loads = loads_of(cells)
    if len(loads) == 1:
        return _rows(groups, "speedup", "speedup over autoregressive (×)", "%{x:.2f}×", reference("x", 1.0))
    traces: list[Figure] = []
    for policy, style, own in groups:
        at = [load_of(cell).amount for cell in own]
        low, high = zip(*(cell.speedup_interval for cell in own), strict=True)
        traces.append(band(policy, style, at, low, high))
    for policy, style, own in groups:
        at = [load_of(cell).amount for cell in own]
        spans = [span(cell.speedup_interval) for cell in own]
        hover = "%{y:.2f}× (%{customdata})"
        traces.append(line(policy, style, at, [_value(cell, "speedup") for cell in own], hover, customdata=spans))
    layout = {
        "xaxis": _load_axis(loads),
        "yaxis": axis("speedup over autoregressive (×)"),
        "shapes": [reference("y", 1.0)],
        "hovermode": "x unified",
    }
    return {"data": traces, "layout": layout}


def _throughput(cells: list[Cell], styles: Styles) -> Figure:
    groups = _by_policy(cells, styles)
    loads = loads_of(cells)
    if len(loads) == 1:
        return _rows(groups, "token_throughput", "output tokens a second", "%{x:,.0f} tokens/s", None)
    traces = [
        line(
            policy,
            style,
            [load_of(cell).amount for cell in own],
            [_value(cell, "token_throughput") for cell in own],
            "%{y:,.0f} tokens/s",
        )
        for policy, style, own in groups
    ]
    vertical = tokens_axis("output tokens a second (log scale)")
    return {"data": traces, "layout": {"xaxis": _load_axis(loads), "yaxis": vertical, "hovermode": "x unified"}}


def _interactivity(cells: list[Cell], styles: Styles) -> Figure:
    traces = []
    for policy, style, own in _by_policy(cells, styles):
        speed = numbers(_inverse(_value(cell, "tpot_p50")) for cell in own)
        total = [_value(cell, "token_throughput") for cell in own]
        phrases = [load_of(cell).phrase for cell in own]
        hover = "%{customdata}: %{y:,.0f} tokens/s, %{x:.1f} tokens/s a request"
        traces.append(line(policy, style, speed, total, hover, customdata=phrases))
    layout = {
        "xaxis": axis("tokens a second one request sees", rangemode="tozero"),
        "yaxis": tokens_axis("output tokens a second (log scale)"),
    }
    return {"data": traces, "layout": layout}


def _rows(
    groups: list[tuple[str, Style, list[Cell]]], field: str, title: str, hover: str, mark: Figure | None
) -> Figure:
    """One load only: a line has nothing to join, so policies become rows."""
    traces = []
    for policy, style, own in groups:
        interval = own[0].speedup_interval if field == "speedup" else None
        traces.append(dot(policy, style, _value(own[0], field), interval, hover))
    layout = {
        "xaxis": axis(title) if mark else axis(title, rangemode="tozero"),
        "yaxis": rows_axis(policy for policy, _, _ in groups),
        "shapes": [mark] if mark else [],
        "height": rows_height([policy for policy, _, _ in groups]),
    }
    return {"data": traces, "layout": layout}


def _value(cell: Cell, field: str) -> float:
    return cell.values.get(field, math.nan)


def _inverse(value: float) -> float:
    return 1 / value if value else math.nan
