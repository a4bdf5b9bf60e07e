"""A regret study in the terminal: what every policy lost in every environment, then in words. Fits 80 columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specsim.report.labels import lines
from specsim.report.wording import digits, half_width
from specsim.study.regret.result import PolicyRegret, RegretResult, Surroundings

CELL_WIDTH = 10
POLICY_WIDTH = 24
HINDSIGHT = "best fixed arm, in hindsight"


def render_regret(result: RegretResult, console: Console, report: Path | None = None) -> None:
    """Print the study.

    result      what was found
    console     where to; its width is kept to
    report      where the page lies, told at the end (None: there is none)
    """
    console.print(Text(result.title, style="bold"))
    steps = " or ".join(f"{steps:,}" for steps in dict.fromkeys(found.num_steps for found in result.environments))
    console.print(Text(f"{len(result.seeds)} seeds of {steps} steps", style="dim"))
    for heading, of, fixed in (
        ("Expected acceptance lost against the best arm of each step", _acceptance, True),
        ("Seconds lost against the fastest arm of each step, switching included", _seconds, False),
    ):
        console.print()
        console.print(Text(heading, style="bold"))
        for environments in _chunks(result.environments, console.width):
            console.print(_table(result, environments, of, fixed))
    _print_legend(result, console)
    for title, sentences in (("Findings", result.findings), ("Notes", result.notes)):
        _print_sentences(title, sentences, console)
    if report is not None:
        console.print()
        console.print(Text(f"Report: {report}"), soft_wrap=True)


Amount = tuple[float, tuple[float, float]]


def _acceptance(found: PolicyRegret) -> Amount:
    return found.regret, found.regret_interval


def _seconds(found: PolicyRegret) -> Amount:
    return found.seconds_regret, found.seconds_interval


def _chunks(environments: list[Surroundings], width: int) -> list[list[Surroundings]]:
    """Environments in as few tables as fit beside the labels, as even as can be."""
    fit = max(1, (width - POLICY_WIDTH) // (CELL_WIDTH + 1))
    size = math.ceil(len(environments) / math.ceil(len(environments) / fit))
    return [environments[start : start + size] for start in range(0, len(environments), size)]


def _table(
    result: RegretResult, environments: list[Surroundings], of: Callable[[PolicyRegret], Amount], fixed: bool
) -> Table:
    table = Table(box=None, padding=(0, 0, 0, 1), pad_edge=False, header_style="bold")
    table.add_column("policy", max_width=POLICY_WIDTH, overflow="fold")
    for environment in environments:
        table.add_column(heading(environment.name), justify="right", width=CELL_WIDTH, overflow="fold")
    columns = [{found.policy: of(found) for found in result.of(environment.name)} for environment in environments]
    least = [_least(result, environment.name, of) for environment in environments]
    for policy in result.policies:
        cells = [_cell(column[policy], best) for column, best in zip(columns, least, strict=True)]
        table.add_row(Text("\n".join(lines(policy, POLICY_WIDTH))), *cells)
    if fixed:
        values = (Text(digits(environment.fixed_regret), style="dim") for environment in environments)
        table.add_row(Text(HINDSIGHT, style="dim"), *values)
    return table


def _least(result: RegretResult, environment: str, of: Callable[[PolicyRegret], Amount]) -> float:
    """What the policy that loses least loses, of those that are told of their own arm alone."""
    own = result.of(environment)
    return min(of(found)[0] for found in [found for found in own if not found.full_information] or own)


def _cell(amount: Amount, least: float) -> Text:
    mean, interval = amount
    text = Text(digits(mean), style="bold green" if mean == least else "")
    return text.append(half_width(interval), style="dim")


def heading(name: str) -> str:
    """An environment's name in lines, one word each: `hidden`, `improve-`, `ment` at ten columns."""
    words = name.split("_")
    return "\n".join(f"{word[:7]}." if len(word) > CELL_WIDTH else word for word in words)


def _print_legend(result: RegretResult, console: Console) -> None:
    console.print()
    console.print(Text("±: half of the 90 % bootstrap interval of the mean over seeds", style="dim"))
    for environment in result.environments:
        if len(environment.lines) > 1:
            ends = ", ".join(f"{name} {line[-1]:.1f}" for name, line in environment.lines.items())
            console.print(Text(f"{environment.name}, theory: {ends}", style="dim"))


def _print_sentences(title: str, sentences: list[str], console: Console) -> None:
    if not sentences:
        return
    console.print()
    console.print(Text(title, style="bold"))
    for sentence in sentences:
        bullet = Table.grid(padding=(0, 1, 0, 0))
        bullet.add_column(width=1)
        bullet.add_column(overflow="fold")
        bullet.add_row("-", Text(sentence))
        console.print(bullet)
