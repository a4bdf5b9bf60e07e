"""`specsim parity`: whether a recorded live run and the simulator decide alike, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specsim.cli import options
from specsim.cli.compare import progress_bar
from specsim.errors import InputError

DIFFERENT = 1


def parity(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder that a live run was recorded to.")],
    trace: Annotated[
        str | None,
        typer.Option(
            "--trace", metavar="TRACE", help="Position-indexed trace of the same prompts, to predict exactly."
        ),
    ] = None,
    as_json: options.AsJson = False,
    recover: Annotated[
        bool, typer.Option("--recover", help="Make a trace of what a killed run left, instead of comparing.")
    ] = False,
) -> None:
    """Take a live run again in the simulator, and compare every decision.

    The simulator's own replica meets the same arrivals, drafts, acceptance and
    measured seconds, and must choose the same arms, depths and verified lengths.
    Then the run is predicted from the cost table alone, beside what was measured.
    Exit code 1 at the first difference.

    Example: specsim parity runs/chat --trace traces/chat
    """
    if recover:
        if trace is not None or as_json:
            raise InputError("--recover stands alone")
        from specsim.study.parity.recover import recover as finish

        manifest = finish(folder, lambda line: typer.echo(f"specsim: warning: {line}", err=True))
        typer.echo(f"{folder}: a {manifest.kind} trace of the requests that had ended")
        return
    from specsim.study.parity.compare import parity as compare

    with progress_bar() as bar:
        task = bar.add_task("steps", total=None)
        found = compare(folder, trace, lambda done, total: bar.update(task, completed=done, total=total))
    if as_json:
        typer.echo(json.dumps(found.document(), indent=1, allow_nan=False))
    else:
        from specsim.report.parity_terminal import render_parity

        render_parity(found, Console())
    if not found.equal:
        raise typer.Exit(DIFFERENT)
