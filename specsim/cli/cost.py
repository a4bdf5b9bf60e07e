"""`specsim cost`: look at cost tables."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specsim.cli import options
from specsim.cost import CostTable
from specsim.cost.show import measured_contexts, render
from specsim.errors import InputError
from specsim.shipped import shipped_names

app = typer.Typer(name="cost", help="Look at cost tables: what a step takes, phase by phase.", no_args_is_help=True)


@app.command()
def show(
    table: Annotated[str, typer.Argument(help="Folder of a cost table, or the name of a shipped one.")],
    context: Annotated[int | None, typer.Option(help="Measured context to show (default: the smallest).")] = None,
    drafter: Annotated[str | None, typer.Option(help="Whose whole step to show (default: the only one's).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also write a page of charts to this HTML file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: metadata, notes and cells.")] = False,
) -> None:
    """Print a cost table: seconds by batch and tokens, where they come from, how far they reach."""
    options.check_file(plot, "--plot")
    costs = CostTable.open(table)
    contexts = measured_contexts(costs)
    if context is not None and context not in contexts:
        raise InputError(
            f"--context {context}: not measured in {costs.name}; measured: {', '.join(map(str, contexts))}"
        )
    if drafter is not None and drafter not in costs.drafters:
        raise InputError(f"--drafter {drafter}: not in {costs.name}; it has {', '.join(costs.drafters) or 'none'}")
    if plot is not None:
        _write_figure(costs, plot)
    if as_json:
        typer.echo(json.dumps(_as_dict(costs), indent=1))
    else:
        console = Console()
        for part in render(costs, context, drafter):
            console.print(part)
    if plot is not None:
        typer.echo(f"figure: {plot}", err=True)


@app.command("list")
def list_tables(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: metadata by name.")] = False,
) -> None:
    """List the shipped cost tables."""
    tables = [CostTable.open(name) for name in shipped_names("cost")]
    if as_json:
        typer.echo(json.dumps({table.name: table.meta.model_dump(mode="json") for table in tables}, indent=1))
        return
    listing = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in ("name", "label", "batch", "tokens"):
        listing.add_column(heading, no_wrap=True)
    listing.add_column("model, hardware", overflow="fold")
    for table in tables:
        spans = (f"{low}-{high}" for low, high in (table.ranges.batch, table.ranges.tokens))
        listing.add_row(table.name, table.meta.label, *spans, Text(f"{table.meta.model}, {table.meta.hardware}"))
    Console().print(listing)


def _as_dict(table: CostTable) -> dict[str, object]:
    meta = table.meta.model_dump(mode="json")
    return {"meta": meta, "notes": table.notes, "cells": [asdict(cell) for cell in table.cells]}


def _write_figure(table: CostTable, file: Path) -> None:
    from specsim.report.cost import write_cost_page  # plotly takes a second to import

    try:
        write_cost_page(table, file)
    except OSError as error:
        raise InputError(f"--plot {file}: cannot be written ({error.strerror})") from None
