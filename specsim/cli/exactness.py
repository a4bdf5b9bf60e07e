"""`specsim exactness`: whether what controllers allow keeps the target's distribution."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from specsim.cli.compare import progress_bar
from specsim.errors import InputError

SEEDS = 8
FAULT = 1


def exactness(
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", metavar="POLICY", help="Only this one; see `specsim policies`. May be repeated (default: all)."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="Random laws and costs for each.")] = SEEDS,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON, nothing else.")] = False,
) -> None:
    """Check by enumeration that every policy keeps the target's distribution, or is refused.

    Every draft, accept test and recovered token of two or three tokens, up to
    three positions and two requests: no sampling. A number is the distance (L1)
    from the target's law. What is refused is forced, and shows its bias; it is
    idle where its options leave the score nothing to decide (a ratio of 1).
    Exit code 1 when anything contradicts what the controller says.

    Example: specsim exactness --policy dcut:score=max_prob
    """
    from specsim.study.exactness.table import enumerate_table

    if seeds < 1:
        raise InputError(f"--seeds {seeds}: allowed 1 or more")
    with progress_bar() as bar:
        task = bar.add_task("combinations", total=None)
        found = enumerate_table(policy, seeds, lambda done, total: bar.update(task, completed=done, total=total))
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=1))
    else:
        from specsim.report.exactness_terminal import render_exactness

        render_exactness(found, Console())
    if any(one.finding == "contradiction" for one in found):
        raise typer.Exit(FAULT)
