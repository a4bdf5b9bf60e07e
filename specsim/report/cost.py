"""A cost table as one HTML file, in the style of the report: nothing loaded from elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from specsim.cost.cells import Cell
from specsim.cost.show import measured_contexts, milliseconds
from specsim.cost.table import CostTable
from specsim.cost.whole import Step, by_request, deepest, whole_steps
from specsim.report.cost_charts import batch_styles, charts, places
from specsim.report.html import asset, environment, script_json, write_page
from specsim.report.palette import HUES
from specsim.report.wording import NOTHING, digits

COMMON = 16.0
"""Most tokens a request that the first sentence speaks of: what drafters propose."""

COLUMNS = ("phase", "drafter", "batch", "tokens", "draft depth", "context", "ms", "samples", "how")
"""Headings of the table of all cells."""


@dataclass(frozen=True)
class Entry:
    """One cell of a grid: what a step takes, in plain steps and in milliseconds."""

    ratio: float
    milliseconds: str


def write_cost_page(table: CostTable, path: str | Path) -> None:
    """Write the page, whole or not at all.

    table   the cost table
    path    the HTML file; its folder is made when missing
    """
    write_page(cost_page(table), path)


def cost_page(table: CostTable) -> str:
    """The page as one string of HTML."""
    shown = charts(table)
    context = {
        "meta": table.meta,
        "findings": findings(table),
        "notes": [*table.meta.remarks, *table.notes],
        "contexts": measured_contexts(table),
        "drafters": table.drafters or (None,),
        "styles": batch_styles(table),
        "charts": shown,
        "grids": _grids(table),
        "columns": COLUMNS,
        "cells": [_row(cell) for cell in table.cells],
        "facts": _facts(table),
        "hues": HUES,
        "figures": script_json({chart.name: {"follows": chart.follows, "figures": chart.figures} for chart in shown}),
        "stylesheet": Markup(asset("report.css")),
        "script": Markup(asset("report.js")),
        "plotly": Markup(get_plotlyjs()),
    }
    return environment().get_template("cost.html.j2").render(context)


def findings(table: CostTable) -> list[str]:
    """What drafting and verifying cost beside a plain step, for each drafter, at the shortest context."""
    context = measured_contexts(table)[0]
    sentences = []
    for drafter in table.drafters or (None,):
        steps = whole_steps(table, context, drafter)
        if not by_request(steps):
            continue
        common = set.intersection(*({s.tokens / s.batch for s in steps if s.batch == b} for b in _batches(steps)))
        most = max((each for each in common if each <= COMMON), default=1.0)
        known = sorted((s for s in steps if s.tokens / s.batch == most and math.isfinite(s.ratio)), key=_batch)
        if most > 1 and known:
            first, *rest = (f"at batch {step.batch}" for step in known)
            ratios = [digits(step.ratio) for step in known]
            others = "".join(f", {ratio} {where}" for ratio, where in zip(ratios[1:], rest, strict=True))
            who = "V" if drafter is None else f"With {deepest(table, drafter)} drafts a request by {drafter}, v"
            told = f"{who}erifying {most:g} tokens a request takes as long as {ratios[0]} plain steps {first}{others}."
            sentences.append(told)
    return sentences


def _batch(step: Step) -> int:
    return step.batch


def _batches(steps: list[Step]) -> set[int]:
    return {step.batch for step in steps}


def _grids(table: CostTable) -> dict[str, dict[str, Any]]:
    """Whole steps by place of the page: columns, and a row a batch."""
    grids = {}
    for key, (context, drafter) in places(table).items():
        steps = whole_steps(table, context, drafter)
        each = by_request(steps)
        at = {(s.batch, s.tokens / s.batch if each else s.tokens): s for s in steps}
        columns = sorted({column for _, column in at})
        grids[key] = {
            "context": context,
            "drafter": drafter,
            "depth": None if drafter is None else deepest(table, drafter),
            "unit": "tokens a request" if each else "tokens",
            "columns": [f"{column:g}" for column in columns],
            "rows": {b: [_entry(at.get((b, column))) for column in columns] for b in sorted(_batches(steps))},
        }
    return grids


def _entry(step: Step | None) -> Entry | None:
    return None if step is None else Entry(step.ratio, milliseconds(step.seconds))


def _row(cell: Cell) -> list[str]:
    known = (cell.drafter, cell.batch, cell.tokens, cell.depth, cell.context)
    texts = [NOTHING if value is None else str(value) for value in known]
    return [cell.phase, *texts, milliseconds(cell.seconds), str(cell.num_samples or NOTHING), cell.provenance]


def _facts(table: CostTable) -> dict[str, str]:
    """Where the numbers come from and how far they reach."""
    meta = table.meta
    sizes = ", ".join(map(str, meta.capture_sizes)) or "none declared: cost is interpolated"
    facts = {
        "model": meta.model,
        "hardware": meta.hardware,
        "dtype": meta.dtype,
        "engine": meta.engine,
        "versions": ", ".join(f"{name} {version}" for name, version in meta.versions.items()),
        "source": meta.source,
        "date": str(meta.date),
        "licence": meta.licence,
        "method": meta.method,
        "capture sizes": sizes,
    }
    reach = {axis: f"{low} to {high}" for axis, (low, high) in table.ranges.model_dump().items()}
    return {name: text for name, text in facts.items() if text} | {
        f"valid {axis}": span for axis, span in reach.items()
    }
