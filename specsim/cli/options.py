"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from specsim.errors import InputError

ENGINE = "Engine"
LOAD = "Load"
COSTS = "Costs"

TRACE = typer.Option("--trace", metavar="TRACE", help="Folder of a trace, or name of a shipped one.")
Cost = Annotated[str, typer.Option("--cost", metavar="TABLE", help="Cost table: folder, or name of a shipped one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")]
Jobs = Annotated[int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes (default: one a processor).")]
Resume = Annotated[bool, typer.Option("--resume", help="Take finished runs from --out, run the others.")]
DraftCosts = Annotated[
    list[str] | None,
    typer.Option(
        "--draft-cost",
        metavar="[TABLE:]A=B",
        help="Price the trace's drafter A as the table's drafter B: a what-if. May be repeated.",
        rich_help_panel=COSTS,
    ),
]
Extrapolate = Annotated[
    bool | None,
    typer.Option(
        "--extrapolate",
        help="Use cost tables outside what they measured, and say so.",
        rich_help_panel=COSTS,
    ),
]
AllowLossy = Annotated[
    bool | None,
    typer.Option("--allow-lossy", help="Accept policies that change the output's law, and mark them."),
]
Domains = Annotated[
    list[str] | None,
    typer.Option("--domain", metavar="NAME", help="Replay only this domain of the trace. May be repeated."),
]
Requests = Annotated[
    int | None,
    typer.Option(
        "--requests",
        metavar="N",
        help="Finished requests that end a run (default: 4 a slot, 8 at least; 64 with --rate).",
        rich_help_panel=LOAD,
    ),
]
Burstiness = Annotated[
    float | None,
    typer.Option(
        "--burstiness",
        metavar="SHAPE",
        help="With --rate: shape of Gamma arrivals. 1 (the default) is Poisson, less is burstier.",
        rich_help_panel=LOAD,
    ),
]
MaxNumSeqs = Annotated[
    int | None,
    typer.Option("--max-num-seqs", metavar="N", help="Most running requests (256).", rich_help_panel=ENGINE),
]
MaxNumBatchedTokens = Annotated[
    int | None,
    typer.Option("--max-num-batched-tokens", metavar="N", help="Most tokens a step (8192).", rich_help_panel=ENGINE),
]
BlockSize = Annotated[
    int | None, typer.Option("--block-size", metavar="N", help="Tokens a KV block (16).", rich_help_panel=ENGINE)
]
NumKvBlocks = Annotated[
    int | None,
    typer.Option("--num-kv-blocks", metavar="N", help="KV blocks (default: no limit).", rich_help_panel=ENGINE),
]
MaxModelLen = Annotated[
    int | None,
    typer.Option(
        "--max-model-len",
        metavar="N",
        help="Longest sequence, prompt included (default: no limit).",
        rich_help_panel=ENGINE,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option("--max-tokens", metavar="N", help="Longest output (default: the trace's).", rich_help_panel=ENGINE),
]
Prefill = Annotated[
    str | None,
    typer.Option(
        "--prefill",
        metavar="charged|excluded",
        help="Whether prompts are computed and paid for, or cost nothing (default: excluded).",
        rich_help_panel=ENGINE,
    ),
]
TtftSlo = Annotated[
    float | None,
    typer.Option("--slo-ttft", metavar="SECONDS", help="Goodput: most seconds to the first token."),
]
TpotSlo = Annotated[
    float | None,
    typer.Option("--slo-tpot", metavar="SECONDS", help="Goodput: most seconds a further token."),
]


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def numbers(text: str, option: str, kind: type[int] | type[float]) -> list[Any]:
    """Numbers with commas between.

    text    as given
    option  its name, for the error
    kind    int or float
    Raises  InputError naming the first that is none
    """
    found = []
    for item in text.split(","):
        try:
            found.append(kind(item.strip()))
        except ValueError:
            what = "whole numbers" if kind is int else "numbers"
            raise InputError(f"{option} {text}: {item.strip()!r} is not one; give {what} with commas between") from None
    return found


def draft_costs(texts: list[str] | None, tables: list[str]) -> list[dict[str, str]]:
    """What-if prices of each table.

    texts   as given, `[TABLE:]A=B`
    tables  the cost tables of the run, as given; a text without TABLE holds for all
    returns one mapping a table, drafter of the trace -> drafter of the table
    Raises  InputError when a text is no price, or names no table of the run
    """
    prices: list[dict[str, str]] = [{} for _ in tables]
    for text in texts or []:
        drafter, equals, priced_as = text.partition("=")
        table, colon, drafter = drafter.rpartition(":")
        if not (equals and drafter and priced_as):
            raise InputError(
                f"--draft-cost {text}: write DRAFTER_OF_TRACE=DRAFTER_OF_TABLE, or TABLE:A=B for one table"
            )
        if colon and table not in tables:
            raise InputError(f"--draft-cost {text}: {table} is not among the cost tables {', '.join(tables)}")
        for name, own in zip(tables, prices, strict=True):
            if not colon or name == table:
                if own.get(drafter, priced_as) != priced_as:
                    raise InputError(f"--draft-cost {text}: {drafter} is priced as {own[drafter]} already")
                own[drafter] = priced_as
    return prices


def service_level(ttft: float | None, tpot: float | None) -> dict[str, float]:
    """Bounds of goodput that were given.

    ttft    --slo-ttft, seconds
    tpot    --slo-tpot, seconds
    Raises  InputError when one is not positive
    """
    for option, bound in (("--slo-ttft", ttft), ("--slo-tpot", tpot)):
        if bound is not None and not bound > 0:
            raise InputError(f"{option} is {bound}; it must be positive")
    return given(ttft_seconds=ttft, tpot_seconds=tpot)


def check_file(path: Path | None, option: str) -> None:
    """Refuse early what could only fail after the work is done.

    path    a file to be written (None: no file)
    option  its name, for the error
    Raises  InputError when it is a folder or a device, or lies in something that is none
    """
    if path is not None and path.is_dir():
        raise InputError(f"{option} {path}: is a folder; give a file")
    if path is not None and path.exists() and not path.is_file():  # writing by renaming would replace a device
        raise InputError(f"{option} {path}: is no regular file; give one, or a new name")
    check_folder(None if path is None else path.absolute().parent, option, path)


def check_folder(path: Path | None, option: str, given: Path | None = None) -> None:
    """Refuse early a folder that cannot be made.

    path    a folder to be written to (None: no folder)
    option  its name, for the error
    given   what was given, for the error (None: the folder)
    Raises  InputError when it, or what should hold it, is no folder or may not be written to
    """
    if path is None:
        return
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise InputError(f"{option}: {there} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{option}: {there} cannot be written to")
    try:
        with tempfile.TemporaryDirectory(prefix=".specsim-", dir=there):  # /proc says yes, and means no
            pass
    except OSError as error:
        fault = (error.strerror or str(error)).lower()
        raise InputError(f"{option} {given or path}: cannot be written in {there} ({fault})") from None
