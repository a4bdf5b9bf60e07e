"""`specsim tune`: better options for a policy, and how much better they really are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from specsim.cli import options
from specsim.cli.compare import command_line, num_processors, progress_bar
from specsim.errors import InputError

SEARCH = "Search"


def tune(
    context: typer.Context,
    trace: Annotated[
        str, typer.Option("--trace", metavar="TRACE", help="Folder of a trace, name of a shipped one, synthetic:NAME.")
    ],
    cost: options.Cost,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="POLICY",
            help="BUDGET@DRAFTER, see `specsim policies`, or a controller file. Options written here stay as they are"
            " unless searched.",
        ),
    ],
    search: Annotated[
        list[str] | None,
        typer.Option(
            "--search",
            metavar="OPTION[=VALUES]",
            help="depth=1..15, c=0.1..3:log, numerator=paper,bonus, or a name alone. May be repeated (default: every"
            " option of the policy that has usual values).",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    objective: Annotated[
        str, typer.Option("--objective", metavar="NAME", help="throughput or p99_tpot.", rich_help_panel=SEARCH)
    ] = "throughput",
    trials: Annotated[
        int, typer.Option("--trials", metavar="N", help="Combinations to try.", rich_help_panel=SEARCH)
    ] = 40,
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="N", help="Of the split in halves and the sampler.", rich_help_panel=SEARCH),
    ] = 0,
    seeds: Annotated[
        str,
        typer.Option("--seeds", metavar="N|A,B,...", help="Runs of a trial at each batch.", rich_help_panel=SEARCH),
    ] = "3",
    validation_seeds: Annotated[
        str,
        typer.Option(
            "--validation-seeds",
            metavar="N|A,B,...",
            help="Runs of default and tuned on each half, for the gain.",
            rich_help_panel=SEARCH,
        ),
    ] = "10",
    batch: Annotated[
        str,
        typer.Option("--batch", metavar="N,N,...", help="This many requests at a time.", rich_help_panel=options.LOAD),
    ] = "1,4,16",
    requests: options.Requests = None,
    domain: options.Domains = None,
    draft_cost: options.DraftCosts = None,
    extrapolate: options.Extrapolate = None,
    allow_lossy: options.AllowLossy = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE.json", help="Write the tuned controller here, for --policy FILE.json."),
    ] = None,
    as_json: options.AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Keep every run, controller.json and tune.json here."),
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
    """Tune a policy's options on half of a trace's requests, and validate on the rest.

    Every trial meets the same requests in the same order. The gain over the
    default is measured on requests that the tuning never saw, and called noise
    where it is none.

    Example: specsim tune --trace smollm2-drafters --cost cpu-smollm2-drafters
    --policy dcut@block-general --search depth --search numerator
    --batch 1,4,8 --extrapolate --save tuned.json
    """
    from specsim.policies.controller_file import SUFFIX, write_controller_file
    from specsim.report.tune_terminal import render_tuning
    from specsim.study.tune import tune as run
    from specsim.study.tune_config import build_tuning

    if resume and out is None:
        raise InputError("--resume needs --out, the folder whose runs to continue")
    if save is not None and save.suffix != SUFFIX:
        raise InputError(f"--save {save}: must end in {SUFFIX}, for --policy to know it as a controller file")
    options.check_file(save, "--save")
    options.check_folder(out, "--out")
    document: dict[str, Any] = options.given(
        trace=trace,
        table=cost,
        policy=policy,
        search=search,
        objective=objective,
        trials=trials,
        seed=seed,
        seeds=_seeds(seeds, "--seeds"),
        validation_seeds=_seeds(validation_seeds, "--validation-seeds"),
        batches=options.numbers(batch, "--batch", int),
        requests=requests,
        domains=domain,
        draft_costs=options.draft_costs(draft_cost, [cost])[0],
        extrapolate=extrapolate,
        allow_lossy=allow_lossy,
        engine=options.given(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            block_size=block_size,
            num_kv_blocks=num_kv_blocks,
            max_model_len=max_model_len,
            max_tokens=max_tokens,
            prefill=prefill,
        ),
    )
    with progress_bar() as bar:
        task = bar.add_task("runs", total=None)
        result = run(
            build_tuning(document),
            lambda done, total: bar.update(task, completed=done, total=total),
            jobs=jobs or num_processors(),
            out=out,
            resume=resume,
            command=command_line(context),
        )
    if save is not None:
        write_controller_file(save, result.config, tuned=result.provenance())
    if as_json:
        typer.echo(result.to_json())
        return
    console = Console()
    render_tuning(result, console)
    files = [save] if save is not None else [out / "controller.json"] if out is not None else []
    for file in files:
        console.print(Text(f"wrote {file}, for --policy {file}"), soft_wrap=True)


def _seeds(text: str, option: str) -> int | list[int]:
    found = options.numbers(text, option, int)
    return found if "," in text else found[0]
