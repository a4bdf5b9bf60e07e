"""`specsim simulate`: one policy, one cost table, one workload."""

from __future__ import annotations

import json
import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specsim.cli import options
from specsim.errors import InputError

if TYPE_CHECKING:
    from specsim.metrics import Summary
    from specsim.policies.controller import Controller
    from specsim.sim import Workload
    from specsim.telemetry import Run

DEFAULT_BATCH = 8
REQUESTS_PER_SLOT = 4

LATENCIES = {
    "ttft": "to the first token",
    "tpot": "a further token, mean of a request",
    "itl": "between tokens",
    "e2e": "to the last token",
}
METRICS: tuple[tuple[str, str, float, str], ...] = (
    ("throughput", "token_throughput", 1.0, "tokens/s"),
    ("", "request_throughput", 1.0, "requests/s"),
    ("goodput", "goodput", 1.0, "requests/s that met the bounds"),
    ("mean acceptance length", "mean_acceptance_length", 1.0, "tokens a step, bonus included"),
    ("acceptance rate", "acceptance_rate", 100.0, "% of verified drafts"),
    ("draft yield", "draft_yield", 100.0, "% of drafted tokens"),
    ("budget ratio", "budget_ratio", 100.0, "% of drafts verified"),
    ("step", "mean_step_seconds", 1e3, "ms"),
    ("batch", "mean_batch", 1.0, "requests a step"),
    ("steps", "num_decode_steps", 1.0, ""),
    ("tokens", "num_output_tokens", 1.0, ""),
    ("requests", "num_requests", 1.0, "finished"),
    ("duration", "duration_seconds", 1.0, "s, simulated"),
    ("KV cache", "kv_use_peak", 100.0, "% in use at most"),
    ("preemptions", "num_preemptions", 1.0, ""),
)
"""What the table shows of `metrics.Summary`: heading, field, factor, unit."""


def simulate(
    trace: Annotated[str, options.TRACE],
    cost: options.Cost,
    policy: Annotated[str, typer.Option("--policy", metavar="POLICY", help="BUDGET@DRAFTER, see `specsim policies`.")],
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            metavar="N",
            help="Closed loop: this many requests at a time (default: 8).",
            rich_help_panel=options.LOAD,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", metavar="R", help="Open loop instead: this many requests a second.", rich_help_panel=options.LOAD
        ),
    ] = None,
    burstiness: options.Burstiness = None,
    arrivals: Annotated[
        float | None,
        typer.Option(
            "--trace-arrivals",
            metavar="SCALE",
            help="The trace's own arrivals instead, their instants times SCALE: 0.5 doubles the load.",
            rich_help_panel=options.LOAD,
        ),
    ] = None,
    requests: options.Requests = None,
    domain: options.Domains = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Order, arrivals and the policy's draws.")
    ] = 0,
    replicas: Annotated[int, typer.Option("--replicas", metavar="N", min=1, help="Engines behind a router.")] = 1,
    router: Annotated[
        str, typer.Option("--router", metavar="NAME", help="round_robin or least_loaded.")
    ] = "round_robin",
    draft_cost: options.DraftCosts = None,
    extrapolate: options.Extrapolate = None,
    allow_lossy: options.AllowLossy = None,
    slo_ttft: options.TtftSlo = None,
    slo_tpot: options.TpotSlo = None,
    as_json: options.AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Write requests.parquet, steps.parquet and summary.json here."),
    ] = None,
    save_controller: Annotated[
        Path | None,
        typer.Option("--save-controller", metavar="FILE", help="Write what the policy learned to this JSON file."),
    ] = None,
    load_controller: Annotated[
        Path | None,
        typer.Option("--load-controller", metavar="FILE", help="Start from what --save-controller wrote."),
    ] = None,
    max_num_seqs: options.MaxNumSeqs = None,
    max_num_batched_tokens: options.MaxNumBatchedTokens = None,
    block_size: options.BlockSize = None,
    num_kv_blocks: options.NumKvBlocks = None,
    max_model_len: options.MaxModelLen = None,
    max_tokens: options.MaxTokens = None,
    prefill: options.Prefill = None,
) -> None:
    """Simulate one policy on a recorded trace and a cost table.

    Example: specsim simulate --trace smollm2-drafters
    --cost cpu-smollm2-drafters --policy dcut@block-general --batch 8
    """
    from specsim import metrics
    from specsim.sim import ClosedLoop, EngineConfig
    from specsim.sim import simulate as run_simulation
    from specsim.study.inputs import check_prices, open_table, open_trace

    engine = EngineConfig(
        **{"prefill": "excluded"}
        | options.given(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            block_size=block_size,
            num_kv_blocks=num_kv_blocks,
            max_model_len=max_model_len,
            max_tokens=max_tokens,
            prefill=prefill,
        )
    )
    workload = _workload(batch, rate, burstiness, arrivals, requests)
    if isinstance(workload, ClosedLoop) and workload.concurrency > engine.max_num_seqs:
        raise InputError(f"--batch {workload.concurrency} exceeds --max-num-seqs {engine.max_num_seqs}")
    slo = options.service_level(slo_ttft, slo_tpot)
    options.check_file(save_controller, "--save-controller")
    options.check_folder(out, "--out")
    opened = open_trace(trace, domain)
    prices = options.draft_costs(draft_cost, [cost])[0]
    check_prices(prices, opened.drafters)
    table = open_table(cost, prices, bool(extrapolate))
    controller = _controller(policy, opened.drafters, bool(allow_lossy), load_controller)
    run = run_simulation(
        opened, table, controller, engine, workload, seed=seed, num_replicas=replicas, router=router,
        record_steps=out is not None,
    )  # fmt: skip
    summary = metrics.summarize(run, metrics.ServiceLevel(**slo) if slo else None)
    if save_controller is not None:
        save_controller.write_text(json.dumps(controller.state_dict(), indent=1) + "\n")
    where = f"trace {opened.manifest.name}, cost table {table.name}\n{_load(workload)}, seed {seed}"
    _show(run, summary, where, engine.prefill == "excluded", as_json, out)


def _workload(
    batch: int | None, rate: float | None, burstiness: float | None, arrivals: float | None, requests: int | None
) -> Workload:
    from specsim.sim import ClosedLoop, Gamma, TraceArrivals
    from specsim.study.plan import FEWEST_REQUESTS, OPEN_LOOP_REQUESTS

    given = [
        name
        for name, value in (("--batch", batch), ("--rate", rate), ("--trace-arrivals", arrivals))
        if value is not None
    ]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)}: give one of them")
    if burstiness is not None and rate is None:
        raise InputError("--burstiness needs --rate")
    if arrivals is not None:
        if requests is not None:
            raise InputError("--requests does not go with --trace-arrivals, which replays every request once")
        return TraceArrivals(arrivals)
    if rate is not None:
        return Gamma(
            rate, OPEN_LOOP_REQUESTS if requests is None else requests, 1.0 if burstiness is None else burstiness
        )
    batch = DEFAULT_BATCH if batch is None else batch
    return ClosedLoop(batch, max(FEWEST_REQUESTS, REQUESTS_PER_SLOT * batch) if requests is None else requests)


def _load(workload: Workload) -> str:
    """The load in words."""
    from specsim.sim import ClosedLoop, Gamma

    if isinstance(workload, ClosedLoop):
        return f"{workload.concurrency} request{'' if workload.concurrency == 1 else 's'} at a time"
    return f"{workload.rate:g} requests/s" if isinstance(workload, Gamma) else "arrivals as in the trace"


def _controller(policy: str, drafters: Any, allow_lossy: bool, state: Path | None) -> Controller:
    from specsim.policies.build import build_controller

    controller = build_controller(policy, drafters, allow_lossy=allow_lossy)
    if state is None:
        return controller
    try:
        learned = json.loads(state.read_text())
        if not isinstance(learned, dict):
            raise TypeError(f"a {type(learned).__name__} where an object should be")
        controller.load_state_dict(learned)
    except OSError as error:
        raise InputError(f"--load-controller {state}: {(error.strerror or str(error)).lower()}") from None
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"--load-controller {state}: not a state of {controller.label} ({error})") from None
    return controller


def _show(run: Run, summary: Summary, where: str, prefill_excluded: bool, as_json: bool, out: Path | None) -> None:
    from specsim.report.sentences import gathered
    from specsim.study.run_folder import run_facts, write_run

    files = [] if out is None else write_run(run, summary, out)
    if as_json:
        typer.echo(json.dumps(run_facts(run, summary), indent=1, allow_nan=False))
        return
    console = Console()
    console.print(Text(run.label, style="bold"))
    console.print(Text(where, style="dim"))
    if run.lossy_reason:
        console.print(Text(f"LOSSY: {run.lossy_reason}", style="bold red"))
    if run.clairvoyant:
        console.print(Text("A bound, not a policy: it knows what will be accepted.", style="yellow"))
    console.print()
    console.print(_latency_table(summary))
    console.print()
    console.print(_metric_table(run, summary))
    notes = [*run.notes, *(["prompts cost nothing (--prefill excluded)"] if prefill_excluded else [])]
    console.print()
    for note in gathered(notes):
        filled = textwrap.fill(f"note: {note}", console.width, subsequent_indent="      ", break_on_hyphens=False)
        console.print(Text(filled, style="dim"), soft_wrap=True)
    for file in files:
        console.print(Text(f"wrote {file}", style="dim"), soft_wrap=True)


def _latency_table(summary: Summary) -> Table:
    from specsim.report.wording import counted

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("latency, ms")
    for heading in ("mean", "p50", "p90", "p99"):
        table.add_column(heading, justify="right")
    table.add_column("", style="dim")
    for name, meaning in LATENCIES.items():
        values = (getattr(summary, f"{name}_{column}") for column in ("mean", "p50", "p90", "p99"))
        table.add_row(name.upper(), *(counted(1e3 * value) for value in values), meaning)
    return table


def _metric_table(run: Run, summary: Summary) -> Table:
    from specsim.report.wording import counted

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    for heading, field, factor, unit in METRICS:
        value = factor * getattr(summary, field)
        if math.isfinite(value):
            table.add_row(heading, counted(value), unit)
    steps = run.totals.num_decode_steps
    for name, number in zip((*(drafter.name for drafter in run.drafters), "no drafter"), run.arm_steps, strict=True):
        if 0 < number < steps:
            table.add_row(f"drafted by {name}", counted(100 * number / steps), "% of steps")
    return table
