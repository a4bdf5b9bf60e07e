"""A study as one HTML file: tables, words and charts, nothing loaded from elsewhere, so that it opens offline."""

from __future__ import annotations

import functools
import json
import math
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from specsim.report import wording
from specsim.report.charts import Section, drafters_of, sections
from specsim.report.charts.figure import Chart
from specsim.report.charts.place import places_of
from specsim.report.grid import (
    TAGS,
    any_interval,
    definitions,
    grids,
    is_baseline,
    load_of,
    loads_of,
    policies_of,
    reasons,
    tables_of,
    words_of,
)
from specsim.report.labels import breakable
from specsim.report.measures import MEASURES, Measure
from specsim.report.palette import HUES, drafter_styles, policy_styles
from specsim.report.sentences import by_table, footnotes
from specsim.study.result import Cell, StudyResult

DARKEST_SHADE = 0.6
"""Opacity of a cell that is at least FULL_SHADE times faster or slower."""
FULL_SHADE = 4.0
UNKNOWN = (None, "none", "not stated")
"""What the manifest of a cost table says where there is nothing to say."""
NO_LIMIT = "no limit"
"""What an engine option that is not given means."""


def write_report(result: StudyResult, path: str | Path) -> None:
    """Write the report, whole or not at all; the same study gives the same bytes.

    result  what was found
    path    the HTML file; its folder is made when missing
    """
    write_page(page(result), path)


def write_page(text: str, path: str | Path) -> None:
    """Write a page, whole or not at all.

    path    the HTML file; its folder is made when missing
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, target)


def page(result: StudyResult) -> str:
    """The report as one string of HTML."""
    parts = sections(result)
    shown = grids(result)
    tables, policies = tables_of(result), policies_of(result)
    loads = loads_of(result.cells)
    notes = by_table(result.notes, tables, policies)
    context = {
        "result": result,
        "findings": {
            table: [_marked(sentence, policies) for sentence in sentences]
            for table, sentences in by_table(result.findings, tables, policies).items()
        },
        "notes": notes[""],
        "footnotes": {grid.table: footnotes(grid, notes[grid.table]) for grid in shown},
        "about": {table: _about(result, table) for table in tables},
        "grids": shown,
        "sections": parts,
        "styles": policy_styles(result),
        "tables": tables,
        "loads": loads,
        "first_load": loads.index(shown[0].loads[-1]) if shown else None,
        "measured": _measured(result),
        "drafter_styles": drafter_styles(drafters_of(result)),
        "provenance": _provenance(result),
        "words": words_of(shown),
        "definitions": definitions(result),
        "reasons": reasons(shown),
        "any_interval": any_interval(shown),
        "hues": HUES,
        "figures": script_json(_figures(parts)),
        "stylesheet": Markup(asset("report.css")),
        "script": Markup(asset("report.js")),
        "plotly": Markup(get_plotlyjs()),
    }
    return environment().get_template("report.html.j2").render(context)


@functools.cache
def environment() -> Environment:
    """How the pages' templates are rendered: everything is escaped unless it is our own stylesheet or script."""
    made = Environment(
        loader=PackageLoader("specsim.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "times": wording.times,
        "span": wording.span,
        "percent": wording.percent,
        "digits": wording.digits,
        "shade": _shade,
        "breakable": breakable,
        "instant": _instant,
    }
    made.globals |= {"tags": TAGS, "is_baseline": is_baseline}
    made.tests["number"] = lambda value: isinstance(value, float) and math.isfinite(value)
    return made


def asset(name: str) -> str:
    """The text of a file beside the templates."""
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def script_json(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _figures(parts: list[Section]) -> dict[str, Any]:
    charts: list[Chart] = [chart for part in parts for chart in part.charts]
    return {chart.name: {"follows": chart.follows, "figures": chart.figures} for chart in charts}


def _marked(sentence: str, policies: tuple[str, ...]) -> list[tuple[str, bool]]:
    """A sentence in pieces, each with whether it is a policy's label, so that labels are set apart.

    A label that is a word of the language, such as `autoregressive`, stays one.
    """
    labels = sorted((policy for policy in policies if not re.fullmatch("[a-z]+", policy)), key=len, reverse=True)
    unbroken = re.sub(r"(?<=\d) %", "\u00a0%", sentence)
    if not labels:
        return [(unbroken, False)]
    whole = rf"(?<![\w@:=])({'|'.join(map(re.escape, labels))})(?![\w@:=])"
    pieces = re.split(whole, unbroken)
    return [(piece, index % 2 == 1) for index, piece in enumerate(pieces) if piece]


def _shade(speedup: float) -> str:
    """Opacity of a cell's colour: how many times faster or slower, on a logarithmic scale."""
    if not math.isfinite(speedup) or speedup <= 0:
        return "0"
    return f"{DARKEST_SHADE * min(1.0, abs(math.log(speedup)) / math.log(FULL_SHADE)):.3f}"


def _about(result: StudyResult, table: str) -> str:
    """What a cost table is in a few words: `published, 1 x NVIDIA H20, Qwen3-8B`."""
    facts: dict[str, Any] = next((facts for facts in result.tables if facts.get("name") == table), {})
    known = [str(facts[key]) for key in ("label", "hardware", "model") if facts.get(key) not in UNKNOWN]
    return ", ".join(known)


def _instant(text: str) -> str:
    """An ISO 8601 instant as people write it; anything else as it is."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    return at.strftime("%Y-%m-%d %H:%M ") + (at.tzname() or "")


def _measured(result: StudyResult) -> dict[str, Any]:
    """Every metric of every cell: the columns that hold a number, and the rows of each place."""
    columns = [measure for measure in MEASURES if any(math.isfinite(measure.of(cell)) for cell in result.cells)]
    by_place: dict[Any, list[Cell]] = {}
    for cell in result.cells:
        by_place.setdefault((cell.table, load_of(cell)), []).append(cell)
    places = {
        key: {"table": table, "load": load, "rows": [_measured_row(cell, columns) for cell in by_place[(table, load)]]}
        for key, (table, load) in places_of(result).items()
    }
    return {"columns": columns, "places": places}


def _measured_row(cell: Cell, columns: list[Measure]) -> dict[str, Any]:
    return {"policy": cell.policy, "values": [measure.text(cell) for measure in columns]}


def _provenance(result: StudyResult) -> dict[str, list[tuple[str, str]]]:
    """How the numbers were made, for a reader who wants to make them again."""
    parts: dict[str, Any] = {"Trace": result.trace}
    for index, table in enumerate(result.tables):
        parts[f"Cost table {table.get('name', index)}"] = table
    unlimited = {name: NO_LIMIT if value is None else value for name, value in result.engine.items()}
    parts |= {"Engine": unlimited, "Workload": result.workload | {"seeds": result.seeds}}
    return {name: list(_facts(value)) for name, value in parts.items() if value}


def _facts(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested facts as one list of names and texts: `target, sha256`."""
    for name, inner in value.items():
        path = f"{prefix}{name.replace('_', ' ')}"
        if isinstance(inner, dict) and inner:
            yield from _facts(inner, f"{path}, ")
        elif isinstance(inner, list | tuple) and inner and all(isinstance(item, dict) for item in inner):
            for index, item in enumerate(inner):
                rest = {key: entry for key, entry in item.items() if key != "name"}
                yield f"{path}, {item.get('name', index)}", "; ".join(f"{key} {text}" for key, text in _facts(rest))
        elif isinstance(inner, list | tuple) and any(_is_sentence(item) for item in inner):
            yield path, "\n".join(_readable(item) for item in inner)
        else:
            yield path, _readable(inner)


def _is_sentence(value: Any) -> bool:
    return isinstance(value, str) and value.endswith(".")


def _readable(value: Any) -> str:
    """A plain value of the provenance as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(_readable(item) for item in value) or "none"
    return str(value)
