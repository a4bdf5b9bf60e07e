"""A trace's description as terminal tables, 80 columns wide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

SHOWN_POSITIONS = 15
"""Survival columns that fit 80 columns; deeper drafters are shown at evenly spaced depths."""

SHOWN_DOMAINS = 6
"""Domains that stand side by side, drafters' names included, in 80 columns."""


def render(info: dict[str, Any]) -> Iterator[RenderableType]:
    """The parts of a trace's description, from `Trace.info()`."""
    yield _facts(info)
    yield _domains(info["domains"])
    yield from _lengths(info)
    yield _drafters(info["drafters"])
    yield _survival(info["drafters"])
    yield Text()
    yield Text(
        "MAL: mean acceptance length, tokens a step at full depth, bonus token included. ECE: expected calibration "
        "error of the confidence, 0 is perfect. AUC: how well it ranks drafts, .5 is chance and 1 is perfect. "
        "Survival: share of blocks whose first k drafts are accepted.",
        style="dim",
    )


def _facts(info: dict[str, Any]) -> Table:
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    name = info["name"] + (" (SYNTHETIC: made up, not recorded)" if info["synthetic"] else "")
    size = f"{info['num_requests']:,} with {info['num_prompt_tokens']:,} prompt and "
    rows = {
        "trace": name,
        "kind": _kind(info),
        "target": info["target"],
        "sampling": ", ".join(f"{key} {value}" for key, value in info["sampling"].items() if value is not None),
        "hardware": info["hardware"],
        "recorded by": info["recorded_by"],
        "licence": info["licence"],
        "requests": size + f"{info['num_output_tokens']:,} output tokens",
    }
    for label, value in rows.items():
        if value:
            facts.add_row(label, Text(value))
    return facts


def _kind(info: dict[str, Any]) -> str:
    if info["kind"] == "trajectory":
        return "trajectory of one policy, so replaying another is an estimate"
    sampled = [drafter["name"] for drafter in info["drafters"] if drafter["law"] == "sampled"]
    if sampled:
        return f"position-indexed; exact replay but for {', '.join(sampled)}, whose drafts are one sample"
    return "position-indexed, so any policy can be replayed exactly"


def _domains(domains: list[dict[str, Any]]) -> Table:
    table = Table("domain", box=box.SIMPLE_HEAD)
    for heading in ("requests", "output tokens"):
        table.add_column(heading, justify="right", no_wrap=True)
    for domain in domains:
        table.add_row(Text(domain["name"]), f"{domain['num_requests']:,}", f"{domain['num_output_tokens']:,}")
    return table


def _lengths(info: dict[str, Any]) -> Iterator[Table]:
    """Mean acceptance lengths, a row a drafter and a column a domain; many domains stand in several tables."""
    domains = info["domains"]
    for first in range(0, len(domains), SHOWN_DOMAINS):
        shown = domains[first : first + SHOWN_DOMAINS]
        table = Table("MAL in", box=box.SIMPLE_HEAD)
        for domain in shown:
            table.add_column(Text(domain["name"]), justify="right", overflow="fold", min_width=4)
        for drafter in info["drafters"]:
            lengths = (_decimals(domain["mean_acceptance_length"][drafter["name"]], 2) for domain in shown)
            table.add_row(Text(drafter["name"]), *lengths)
        yield table


def _drafters(drafters: list[dict[str, Any]]) -> Table:
    table = Table("drafter", box=box.SIMPLE_HEAD)
    table.add_column("what it is", ratio=1, overflow="fold")
    for heading in ("depth", "MAL", "ECE", "AUC"):
        table.add_column(heading, justify="right", no_wrap=True)
    for drafter in drafters:
        law = drafter["law"].replace("_", " ")
        what = f"{drafter['kind']}, {law}, {drafter['structure']}; scores {', '.join(drafter['scores'])}"
        table.add_row(
            Text(drafter["name"]),
            Text(what),
            str(drafter["max_depth"]),
            _decimals(drafter["mean_acceptance_length"], 2),
            _decimals(drafter.get("expected_calibration_error"), 3),
            _decimals(drafter.get("auc"), 2),
        )
    return table


def _survival(drafters: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))  # box rules would take the room of four columns
    table.add_column("  survival", max_width=19)
    depth = max(drafter["max_depth"] for drafter in drafters)
    shown = range(1, depth + 1, -(-depth // SHOWN_POSITIONS))
    for k in shown:
        table.add_column(str(k), justify="right", min_width=3, no_wrap=True)
    for drafter in drafters:
        values = drafter["survival"]
        table.add_row(Text(f"  {drafter['name']}"), *(_share(values[k - 1]) if k <= len(values) else "" for k in shown))
    return table


def _decimals(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _share(value: float | None) -> str:
    if value is None:
        return "-"
    return "1.0" if value >= 0.995 else f"{value:.2f}".removeprefix("0")
