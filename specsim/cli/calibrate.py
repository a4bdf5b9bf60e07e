"""`specsim calibrate`: how right a drafter's confidences are, and can be made."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from specsim.errors import InputError

if TYPE_CHECKING:
    from specsim.study.calibrate import CalibrationFit


def calibrate(
    trace: Annotated[str, typer.Option(metavar="TRACE", help="Folder of a trace, or name of a shipped one.")],
    drafter: Annotated[str, typer.Option(metavar="NAME", help="Drafter of the trace.")],
    calibrator: Annotated[str, typer.Option(metavar="NAME", help="temperature, logistic or isotonic.")] = "isotonic",
    score: Annotated[
        str | None, typer.Option(metavar="SCORE", help="drawn_prob, max_prob, shifted_prob or margin.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split of the requests in halves.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the fitted calibrator's state to this JSON file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
) -> None:
    """Fit a calibrator on half of a trace's requests and judge it on the others.

    ECE is the expected calibration error of the chance that a draft is accepted, given that those before it
    were; "product" that of the chance to survive up to it, by which policies rank. Positions that were never
    tested are left out.

    Example: specsim calibrate --trace smollm2-drafters --drafter eagle-general
    """
    from specsim.core import SCORES
    from specsim.shipped import shipped_path
    from specsim.study.calibrate import calibrate as fit
    from specsim.trace import Trace

    chosen = score or ("margin" if calibrator == "logistic" else "drawn_prob")
    if chosen not in SCORES:
        raise InputError(f"--score {chosen!r}: allowed: {', '.join(SCORES)}")
    if out is not None and (out.is_dir() or not out.resolve().parent.is_dir()):
        raise InputError(f"--out {out}: must be a file in a folder that exists")
    opened = Trace.open(shipped_path("trace", trace))
    result = fit(opened, drafter, calibrator, chosen, seed)
    if out is not None:
        out.write_text(json.dumps(result.calibrator.state_dict(), allow_nan=False) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(_plain(result), indent=1))
        return
    _show(result, calibrator, Console(), out)


def _plain(result: CalibrationFit) -> dict[str, Any]:
    rows = [dataclasses.asdict(position) for position in result.positions]
    unknown = [{key: None if value != value else value for key, value in row.items()} for row in rows]
    return {
        "drafter": result.drafter,
        "score": result.score,
        "num_fitted": result.num_fitted,
        "num_held_out": result.num_held_out,
        "positions": unknown,
    }


def _show(result: CalibrationFit, calibrator: str, console: Console, out: Path | None) -> None:
    table = Table(title=f"{result.drafter}: {result.score} before and after {calibrator}", title_justify="left")
    table.add_column("draft", justify="right")
    table.add_column("tested", justify="right")
    for name in ("ECE", "AUC", "product's ECE"):
        table.add_column(name, justify="right")
        table.add_column("after", justify="right", style="bold")
    for fit in result.positions:
        pairs = (fit.ece_before, fit.ece_after, fit.auc_before, fit.auc_after, fit.survival_before, fit.survival_after)
        numbers = ["-" if value != value else f"{value:.3f}" for value in pairs]
        table.add_row(str(fit.position), f"{fit.num_tested:,}", *numbers)
    console.print(table)
    console.print(
        f"fitted on {result.num_fitted} requests, judged on the {result.num_held_out} others", highlight=False
    )
    if out is not None:
        console.print(f"the fitted calibrator's state: {out}", highlight=False, soft_wrap=True)
