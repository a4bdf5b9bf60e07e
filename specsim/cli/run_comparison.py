"""What each part of a live run's policy brought: the same prompts under other policies, for people and as JSON."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table
from rich.text import Text

from specsim.report.wording import NOTHING, digits, percent, signed_percent, times

if TYPE_CHECKING:
    from specsim.live.session_result import Comparison, SessionResult
    from specsim.metrics import Summary


def comparison_table(result: SessionResult) -> Table:
    """Throughput, speedup, acceptance length and verified share of every policy, the run's own first."""
    plain = result.plain
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("the same prompts", overflow="fold", ratio=1)
    for heading in ("tokens/s", "speedup", "tokens a step", "verified"):
        table.add_column(heading, justify="right", no_wrap=True)
    base = None if plain is None else plain.summary.token_throughput
    rows = [("this run", result.summary), *((other.label, other.summary) for other in result.comparisons)]
    for label, summary in rows:
        table.add_row(Text(label), *_numbers(summary, base))
    return table


def _numbers(summary: Summary, base: float | None) -> list[str]:
    speedup = NOTHING if base is None else times(summary.token_throughput / base)
    return [
        digits(summary.token_throughput),
        speedup,
        digits(summary.mean_acceptance_length),
        percent(summary.budget_ratio),
    ]


def comparison_lines(result: SessionResult) -> list[str]:
    """Sentences: what speculation, pruning and the choice among drafters brought, and what was not compared."""
    lines = [*_parts(result)]
    if result.left_out:
        lines.append(f"not compared, for want of time: {', '.join(result.left_out)}")
    return lines


def wrapped(sentence: str, width: int) -> str:
    """A sentence in lines of a terminal, numbers kept with their per cent signs."""
    kept = sentence.replace(" %", "\N{NO-BREAK SPACE}%")
    return textwrap.fill(kept, width, subsequent_indent="  ", break_on_hyphens=False).replace("\N{NO-BREAK SPACE}", " ")


def _parts(result: SessionResult) -> list[str]:
    lines = []
    plain = result.plain
    if plain is not None:
        lines.append(
            f"speculation as controlled here: {signed_percent(plain.speedup - 1)} over autoregressive decoding"
        )
    for other in result.comparisons:
        if other.part == "unpruned":
            lines.append(
                f"pruning: {signed_percent(other.speedup - 1)} over verifying all that the same drafters draft"
            )
    alone = [other for other in result.comparisons if other.part == "alone"]
    if len(alone) > 1:
        lines.append(_choice(alone, complete=not any(label.endswith(" alone") for label in result.left_out)))
    again = next((other for other in result.comparisons if other.part == "again"), None)
    if plain is not None and again is not None:
        drift = signed_percent(plain.speedup / again.speedup - 1)
        lines.append(f"the machine: plain decoding again, after all others: {drift}; smaller differences mean nothing")
    return lines


def _choice(alone: Sequence[Comparison], complete: bool) -> str:
    """What choosing among drafters brought, against those who would have had to be known before."""
    ranked = sorted(alone, key=lambda other: other.speedup)
    best, worst = ranked[0], ranked[-1]
    # Prompts served by a drafter taken at random would take the mean of the drafters' seconds a token.
    blind = float(np.mean([other.speedup for other in alone]))
    first = "the best one" if complete else "the best one compared"
    against = {f"{first} ({best.label})": best.speedup, "one taken blindly": blind}
    against[f"the worst ({worst.label})"] = worst.speedup
    return "choosing the drafter: " + ", ".join(
        f"{signed_percent(ratio - 1)} against {whom}" for whom, ratio in against.items()
    )


def identity(result: SessionResult) -> list[str]:
    """Whether outputs are the same under all policies; nothing where tokens are drawn, whose luck differs."""
    judged = [other for other in result.comparisons if other.compared]
    lines = [_against(other) for other in judged if other.part == "plain"]
    others = [other for other in judged if other.part != "plain"]
    apart = [other for other in others if other.difference is not None]
    if others and not apart:
        runs = "the other run" if len(others) == 1 else f"all {len(others)} other runs"
        lines.append(f"identical in {runs}: yes, token by token")
    return lines + [_against(other) for other in apart]


def _against(other: Comparison) -> str:
    name = "plain decoding" if other.part == "plain" else f"the run {other.label}"
    different = other.difference
    if different is None:
        return f"identical to {name}: yes, all {other.compared} outputs, token by token"
    return (
        f"identical to {name}: no, {different.num_requests} of {other.compared} outputs differ; "
        f"first difference at token {different.position} of request {different.request_id}"
    )


def comparison_facts(other: Comparison) -> dict[str, Any]:
    """A comparison for machines: null where a number does not exist."""
    from specsim.study.run_folder import run_facts

    return {
        "part": other.part,
        "label": other.label,
        "policy": other.run.label,
        "speedup": other.speedup if math.isfinite(other.speedup) else None,
        "num_compared": other.compared,
        "identical": other.difference is None if other.compared else None,
        "first_difference": None if other.difference is None else dataclasses.asdict(other.difference),
        "metrics": run_facts(other.run, other.summary)["metrics"],
    }
