"""`specsim demo`: the preset study on shipped data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specsim.cli import options
from specsim.cli.compare import command_line, num_processors, run_study, show


def demo(
    context: typer.Context,
    html: Annotated[
        Path, typer.Option("--html", metavar="FILE", help="Write the report to this file.", show_default=True)
    ] = Path("report.html"),
    as_json: options.AsJson = False,
    jobs: options.Jobs = None,
) -> None:
    """Compare policies on shipped data, print who wins where, write a report.

    A small model's recorded trace, with six drafters to choose among, meets the
    costs of a processor and of a data-centre GPU; a trace calibrated to published
    acceptance meets the published costs it belongs to. Takes less than 20 s on two
    processors.
    """
    from specsim.study.demo import TITLE, demo_studies
    from specsim.study.join import join

    options.check_file(html, "--html")
    command = command_line(context)
    parts = demo_studies()
    results = [
        run_study(part, jobs or num_processors(), None, False, command, f"part {number} of {len(parts)}")
        for number, part in enumerate(parts, start=1)
    ]
    show(join(results, TITLE, command), html, as_json)
