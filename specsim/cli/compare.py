"""`specsim compare`: policies x loads x cost tables on one trace."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from specsim.cli import options
from specsim.errors import InputError

if TYPE_CHECKING:
    from specsim.config import StudyConfig
    from specsim.study.result import StudyResult


def compare(
    context: typer.Context,
    trace: Annotated[str | None, options.TRACE] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option("--cost", metavar="TABLE", help="Cost table: folder, or name of a shipped one. May be repeated."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="POLICY",
            help="BUDGET@DRAFTER, see `specsim policies`. May be repeated. Autoregressive always takes part.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Study in YAML or TOML; other options override it."),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch",
            metavar="N,N,...",
            help="Closed loop: this many requests at a time (default: 1,4,16).",
            rich_help_panel=options.LOAD,
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            metavar="R,R,...",
            help="Open loop instead: this many requests a second.",
            rich_help_panel=options.LOAD,
        ),
    ] = None,
    burstiness: options.Burstiness = None,
    requests: options.Requests = None,
    domain: options.Domains = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="N|A,B,...", help="How many seeds, or which ones (default: 5).")
    ] = None,
    draft_cost: options.DraftCosts = None,
    extrapolate: options.Extrapolate = None,
    allow_lossy: options.AllowLossy = None,
    clairvoyant: Annotated[
        bool | None, typer.Option("--clairvoyant/--no-clairvoyant", help="Add the clairvoyant bound (default: yes).")
    ] = None,
    slo_ttft: options.TtftSlo = None,
    slo_tpot: options.TpotSlo = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Heading of the results.")] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the report to this file.")] = None,
    as_json: options.AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Keep each run (Parquet) and the result (JSON) here."),
    ] = None,
    resume: options.Resume = False,
    jobs: options.Jobs = None,
    max_num_seqs: options.MaxNumSeqs = None,
    max_num_batched_tokens: options.MaxNumBatchedTokens = None,
    block_size: options.BlockSize = None,
    num_kv_blocks: options.NumKvBlocks = None,
    max_model_len: options.MaxModelLen = None,
    max_tokens: options.MaxTokens = None,
    prefill: options.Prefill = None,
) -> None:
    """Compare policies on a recorded trace over loads and cost tables.

    Every policy meets the same requests, so differences are paired by seed. The
    answer is a table of speedups over autoregressive decoding, and sentences that
    say who wins where.

    Example: specsim compare --trace smollm2-drafters --cost cpu-smollm2-drafters
    --policy fixed_depth:depth=7@block-general --policy dcut@block-general
    --batch 1,4,8 --extrapolate
    """
    engine = options.given(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        block_size=block_size,
        num_kv_blocks=num_kv_blocks,
        max_model_len=max_model_len,
        max_tokens=max_tokens,
        prefill=prefill,
    )
    changes = options.given(
        title=title,
        trace=trace,
        domains=domain,
        policies=policy,
        batches=None if batch is None else options.numbers(batch, "--batch", int),
        rates=None if rate is None else options.numbers(rate, "--rate", float),
        burstiness=burstiness,
        requests=requests,
        seeds=None if seeds is None else _seeds(seeds),
        clairvoyant=clairvoyant,
        allow_lossy=allow_lossy,
        extrapolate=extrapolate,
    )
    if cost:
        prices = options.draft_costs(draft_cost, cost)
        changes["tables"] = [{"path": path, "draft_costs": own} for path, own in zip(cost, prices, strict=True)]
    study = _study(config, changes, engine, options.service_level(slo_ttft, slo_tpot))
    if draft_cost and not cost:
        raise InputError("--draft-cost needs --cost; in a study file, write draft_costs under its table")
    if resume and out is None:
        raise InputError("--resume needs --out, the folder whose runs to continue")
    options.check_file(html, "--html")
    options.check_folder(out, "--out")
    result = run_study(study, jobs or num_processors(), out, resume, command_line(context))
    show(result, html, as_json)


def _seeds(text: str) -> int | list[int]:
    found = options.numbers(text, "--seeds", int)
    return found if "," in text else found[0]


def _study(config: Path | None, changes: dict[str, Any], engine: dict[str, Any], slo: dict[str, Any]) -> StudyConfig:
    """The study of the file and the options, the options winning."""
    from specsim.config import build_study, read_study

    document = {} if config is None else read_study(config).model_dump(mode="json", exclude_unset=True)
    if "rates" in changes and "batches" not in changes:
        document.pop("batches", None)
    if "batches" in changes and "rates" not in changes:
        document.pop("rates", None)
    document |= changes
    document["engine"] = document.get("engine", {}) | engine
    if slo:
        document["slo"] = (document.get("slo") or {}) | slo
    if config is None:
        for key, option in (("trace", "--trace"), ("tables", "--cost"), ("policies", "--policy")):
            if key not in document:
                raise InputError(f"{option} is missing: give it, or a study file with --config")
    if not document.get("batches") and not document.get("rates"):
        document["batches"] = [1, 4, 16]
    study = build_study(document)
    if "burstiness" in changes and not study.rates:
        raise InputError("--burstiness needs --rate")
    return study


def num_processors() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def command_line(context: typer.Context) -> str:
    """The command as it was typed."""
    arguments = context.obj["arguments"] if context.obj else [context.info_name or ""]
    return shlex.join(["specsim", *arguments])


def run_study(
    study: StudyConfig, jobs: int, out: Path | None, resume: bool, command: str, doing: str = "runs"
) -> StudyResult:
    """Run a study with a progress bar on stderr that says what it is doing."""
    from specsim.study.compare import compare as run

    with ExitStack() as stack:
        bar = stack.enter_context(progress_bar())
        task = bar.add_task(doing, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return run(study, jobs=jobs, out=out, resume=resume, progress=advance, command=command)


def progress_bar() -> Progress:
    """A bar that leaves nothing behind, and says nothing where nobody watches."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def show(result: StudyResult, html: Path | None, as_json: bool) -> None:
    """Print the study, and write its report where asked."""
    if html is not None:
        from specsim.report.html import write_report

        write_report(result, html)
    if as_json:
        typer.echo(result.to_json())
        return
    from specsim.report.terminal import render

    render(result, Console(), html)
