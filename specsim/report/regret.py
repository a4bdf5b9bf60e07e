"""A regret study as one HTML file, in the style of the report: nothing loaded from elsewhere."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from specsim.report.charts.figure import Chart
from specsim.report.html import asset, environment, script_json, write_page
from specsim.report.palette import HUES, styles_in_order
from specsim.report.regret_charts import arm_share, over_time, total
from specsim.report.wording import digits, percent, span
from specsim.study.regret.result import PolicyRegret, RegretResult, Surroundings

MEASURES = ("acceptance", "seconds")
"""What regret is counted in, in the order of the page's choices."""

DARKEST_SHADE = 0.6
FULL_SHADE = 16.0
"""Times as much as the policy that loses least: there a cell is darkest."""

COLUMNS = {
    "acceptance": {
        "lost": "mean over seeds",
        "90 %": "bootstrap interval of the mean",
        "std. dev.": "standard deviation over seeds",
        "5–95 %": "of the seeds",
        "against best fixed": "lost against the best fixed arm; below 0 where following changes pays",
        "of best fixed": "acceptance collected, as a share of the best fixed arm's",
        "of oracle": "acceptance collected, as a share of the best arm's of each step",
    },
    "seconds": {
        "lost": "mean seconds over seeds",
        "90 %": "bootstrap interval of the mean",
        "switches": "steps whose arm was not the one before",
    },
}
"""Headings of the tables of numbers, with what they mean."""


@dataclass(frozen=True)
class Entry:
    """One cell of the answer: what a policy lost, its interval, how dark, whether it is the least."""

    value: str
    interval: str
    shade: str
    best: bool


def write_regret_report(result: RegretResult, path: str | Path) -> None:
    """Write the page, whole or not at all.

    result  what was found
    path    the HTML file; its folder is made when missing
    """
    write_page(regret_page(result), path)


def regret_page(result: RegretResult) -> str:
    """The page as one string of HTML."""
    styles = styles_in_order(result.policies)
    charts = [over_time(result, styles), total(result, styles), arm_share(result)]
    context = {
        "result": result,
        "findings": [_marked(sentence, result.policies) for sentence in result.findings],
        "answer": _answer(result),
        "styles": styles,
        "charts": charts,
        "measures": MEASURES,
        "columns": COLUMNS,
        "numbers": _numbers(result),
        "provenance": _provenance(result),
        "hues": HUES,
        "digits_of": digits,
        "figures": script_json(_figures(charts)),
        "stylesheet": Markup(asset("report.css")),
        "script": Markup(asset("report.js")),
        "plotly": Markup(get_plotlyjs()),
    }
    return environment().get_template("regret.html.j2").render(context)


def _figures(charts: list[Chart]) -> dict[str, Any]:
    return {chart.name: {"follows": chart.follows, "figures": chart.figures} for chart in charts}


def _answer(result: RegretResult) -> dict[str, list[Entry]]:
    """By policy, one entry an environment."""
    rows: dict[str, list[Entry]] = {policy: [] for policy in result.policies}
    for surroundings in result.environments:
        least = result.least(surroundings.name)
        for found in result.of(surroundings.name):
            shade = _shade(found, least.regret)
            rows[found.policy].append(
                Entry(digits(found.regret), span(found.regret_interval), shade, found.policy == least.policy)
            )
    return rows


def _shade(found: PolicyRegret, least: float) -> str:
    """Opacity: how many times the least is lost, on a logarithmic scale."""
    if least <= 0 or found.regret <= least:
        return "0"
    return f"{DARKEST_SHADE * min(1.0, math.log(found.regret / least) / math.log(FULL_SHADE)):.3f}"


def _provenance(result: RegretResult) -> dict[str, dict[str, str]]:
    """What each environment was, for a reader who wants to make it again."""
    facts = {f"Environment {found.name.replace('_', ' ')}": _facts(found) for found in result.environments}
    return facts | {"Seeds": {"number": str(len(result.seeds)), "from": f"{result.seeds[0]} to {result.seeds[-1]}"}}


def _facts(surroundings: Surroundings) -> dict[str, str]:
    pairs = zip(surroundings.arms, surroundings.means, strict=True)
    facts = {
        "steps (T)": f"{surroundings.num_steps:,}",
        "arms (K)": str(len(surroundings.arms)),
        "expected acceptance at first": ", ".join(f"{arm} {digits(mean)}" for arm, mean in pairs),
    }
    if surroundings.changes:
        facts["arms change at step"] = ", ".join(f"{step:,}" for step in surroundings.changes)
    return facts | {"best fixed arm, in hindsight": surroundings.best_fixed}


def _numbers(result: RegretResult) -> dict[str, dict[str, Any]]:
    """The tables of numbers by place: `1/0` is the second environment, counted in acceptance."""
    places = {}
    for index, surroundings in enumerate(result.environments):
        own = result.of(surroundings.name)
        for number, measure in enumerate(MEASURES):
            rows = [(found.policy, _row(found, measure)) for found in own]
            places[f"{index}/{number}"] = {"environment": surroundings, "measure": measure, "rows": rows}
    return places


def _row(found: PolicyRegret, measure: str) -> list[str]:
    if measure == "seconds":
        return [digits(found.seconds_regret), span(found.seconds_interval), digits(found.switches)]
    return [
        digits(found.regret),
        span(found.regret_interval),
        digits(found.regret_sd),
        span(found.regret_band),
        digits(found.static_regret),
        percent(found.share_of_best_fixed),
        percent(found.share_of_oracle),
    ]


def _marked(sentence: str, policies: tuple[str, ...]) -> list[tuple[str, bool]]:
    """A sentence in pieces, each with whether it is a policy's text."""
    longest_first = sorted(policies, key=len, reverse=True)
    whole = rf"(?<![\w:=])({'|'.join(map(re.escape, longest_first))})(?![\w:=])"
    pieces = re.split(whole, re.sub(r"(?<=\d) (?=s\b|%)", "\u00a0", sentence))
    return [(piece, index % 2 == 1) for index, piece in enumerate(pieces) if piece]
