"""`specsim policies`: what may stand after --policy."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

NAME_WIDTH = 17

GRAMMAR = "BUDGET[:opt=value,...][~CALIBRATOR[:opt=value,...]][@DRAFTER[:opt=value,...]]"


def policies(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the policies, their options and defaults."""
    from specsim.policies.build import ARMS, BUDGETS, CALIBRATORS

    groups = {"BUDGET": BUDGETS, "DRAFTER": ARMS, "CALIBRATOR": CALIBRATORS}
    if as_json:
        typer.echo(
            json.dumps({role: {n: _described(p) for n, p in known.items()} for role, known in groups.items()}, indent=1)
        )
        return
    console = Console()
    console.print("A policy is written", highlight=False)
    console.print(Text(f"  {GRAMMAR}"))
    console.print("where DRAFTER is a drafter policy or, by its own name, a drafter of the trace.", highlight=False)
    for role, known in groups.items():
        console.print()
        console.print(Text(role, style="bold"))
        for name, policy in known.items():
            console.print(_entry(name, _described(policy)))


def _entry(name: str, described: dict[str, Any]) -> Padding:
    """A long name has a line of its own: cut short, it could not be typed."""
    long = len(name) > NAME_WIDTH
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=NAME_WIDTH, no_wrap=True)
    grid.add_column(overflow="fold")
    options = ", ".join(f"{option}={default}" for option, default in described["options"].items())
    grid.add_row("" if long else Text(name, style="bold"), Text(described["summary"]))
    if options:
        grid.add_row("", Text(options, style="dim"))
    return Padding(Group(Text(name, style="bold"), grid) if long else grid, (0, 0, 0, 2))


def _described(policy: type[Any]) -> dict[str, Any]:
    """First sentence of its docstring, and its options with defaults as they are written."""
    from specsim.policies.build import GIVEN_BY_THE_RUN

    summary = (policy.__doc__ or "").split("\n\n")[0]
    fields = [field for field in dataclasses.fields(policy) if field.init and field.name not in GIVEN_BY_THE_RUN]
    return {
        "summary": " ".join(summary.split()),
        "options": {field.name: _written(field.default) for field in fields},
    }


def _written(default: Any) -> str:
    if default is dataclasses.MISSING:
        return "(required)"
    if default is None:
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return "/".join(f"{item:g}" if isinstance(item, float) else _written(item) for item in default)
    return str(default)
