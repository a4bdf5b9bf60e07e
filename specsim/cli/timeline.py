"""`specsim timeline`: what a recorded run did, step by step, for a trace viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from specsim.cli import options
from specsim.errors import InputError
from specsim.report.perfetto import write_timeline
from specsim.telemetry import REQUEST_DTYPE
from specsim.trace import Trace
from specsim.trace.requests import Requests


def timeline(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="Folder of a trace with a steps table.")],
    out: Annotated[Path, typer.Option(help="JSON file to write.")] = Path("timeline.json"),
) -> None:
    """Write the steps of a recorded run as a timeline; open it at https://ui.perfetto.dev."""
    options.check_file(out, "--out")
    opened = Trace.open(trace)
    steps = opened.steps()
    if steps is None or len(steps) == 0:
        raise InputError(f"{opened.path}: holds no engine steps; allowed: a trace of a live run, with steps.parquet")
    with Console(stderr=True).status("writing the timeline"):
        num_events = write_timeline(out, steps, opened.drafters, _arrivals(opened.requests))
    typer.echo(f"{out}: {num_events:,} events of {len(steps):,} steps; open it at https://ui.perfetto.dev")


def _arrivals(requests: Requests) -> np.ndarray:
    """The requests as records of telemetry.REQUEST_DTYPE: a trace knows when they arrived, and no other instant."""
    rows = np.zeros(len(requests), REQUEST_DTYPE)
    rows["index"] = np.arange(len(requests))
    for column in ("request_id", "num_prompt_tokens", "num_output_tokens", "finish_reason"):
        rows[column] = getattr(requests, column)
    rows["arrived_at"] = requests.arrival_at
    for column in ("admitted_at", "first_token_at", "finished_at"):
        rows[column] = np.nan
    return rows
