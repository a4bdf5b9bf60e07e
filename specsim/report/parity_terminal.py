"""Parity of a live run in the terminal: the verdict, then measured beside predicted. Fits 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specsim.report.wording import counted, milliseconds, signed_percent
from specsim.study.parity.compare import Parity
from specsim.study.parity.measures import Pair

NAME_WIDTH, NUMBER_WIDTH = 26, 11
MOST_LENGTHS = 12
"""Requests whose verified lengths are shown at a difference."""


def render_parity(found: Parity, console: Console) -> None:
    """Print what was found.

    found    parity of one run
    console  where to; its width is kept to
    """
    console.print(Text(found.controller, style="bold"), soft_wrap=True)
    _say(
        f"{found.model}, {found.dtype} on {found.device}; drafters {', '.join(found.drafters)}; "
        f"{found.num_requests} requests, {found.num_steps:,} steps",
        console, "dim",
    )  # fmt: skip
    console.print()
    _print_verdict(found, console)
    for heading, pairs, column in (
        (f"Seconds of a step, cost table {found.table}", found.cells, "steps"),
        ("The same by phase", found.phases, "steps"),
        (_outcome_heading(found), found.outcomes, "requests"),
    ):
        if pairs:
            console.print()
            console.print(Text(heading, style="bold"))
            console.print(_table(pairs, column))
    if found.notes:
        console.print()
    for note in found.notes:
        _say(f"note: {note}", console, "dim")


def _outcome_heading(found: Parity) -> str:
    return "The run, simulated at the table's seconds" + (" (estimate)" if found.kind == "estimate" else "")


def _print_verdict(found: Parity, console: Console) -> None:
    if found.difference is None:
        _say(
            f"EQUAL: the simulator takes all {found.num_steps:,} steps as the engine did, bit for bit.",
            console,
            "bold green",
        )
        return
    _say(f"DIFFERENT at {found.difference}.", console, "bold red")
    _say(f"{found.num_equal:,} of {found.num_steps:,} steps before it are equal.", console)
    lengths = list(zip(found.difference.requests, found.difference.lengths, strict=False))
    if lengths:
        shown = ", ".join(f"{request}: {length}" for request, length in lengths[:MOST_LENGTHS])
        more = f" and {len(lengths) - MOST_LENGTHS} more" if len(lengths) > MOST_LENGTHS else ""
        _say(f"Verified drafts by request in the rerun: {shown}{more}.", console)


def _table(pairs: Sequence[Pair], column: str) -> Table:
    table = Table(box=None, padding=(0, 0, 0, 1), pad_edge=False, header_style="bold")
    table.add_column("", width=NAME_WIDTH)
    for heading in (column if any(pair.count for pair in pairs) else "", "measured", "predicted", "error"):
        table.add_column(heading, justify="right", width=NUMBER_WIDTH)
    for pair in pairs:
        unit = "ms" if pair.unit == "s" else pair.unit
        table.add_row(
            f"{pair.name}, {unit}" if unit else pair.name,
            f"{pair.count:,}" if pair.count else "",
            _number(pair.measured, pair.unit),
            _number(pair.predicted, pair.unit),
            Text(signed_percent(pair.error)),
        )
    return table


def _number(value: float, unit: str) -> str:
    if unit == "s":
        return milliseconds(value)
    return counted(value)


def _say(sentence: str, console: Console, style: str = "") -> None:
    filled = textwrap.fill(sentence, console.width, break_on_hyphens=False)
    console.print(Text(filled, style=style), soft_wrap=True)
