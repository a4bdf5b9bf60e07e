"""The end of a live run: what it brought, for people and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specsim.cli.run_comparison import comparison_facts, comparison_lines, comparison_table, identity, wrapped
from specsim.report.sentences import gathered
from specsim.report.wording import digits, percent, times

if TYPE_CHECKING:
    from specsim.live.session_result import SessionResult

SHOWN_SECONDS = 0.005
"""Phases that took less are left out of the list: they would read 0.00."""


def show_summary(result: SessionResult, console: Console, setting: str, telemetry: Path | None) -> None:
    """Print what a run brought.

    console    of stderr
    setting    model and machine in words
    telemetry  where the run was written to (None: nowhere)
    """
    run = result.run
    console.print()
    console.print(Text(run.label, style="bold", overflow="fold"))
    console.print(Text(setting, style="dim"))
    if result.replayed:
        console.print(Text(f"{result.replayed}: real passes, recorded acceptance, no output", style="bold yellow"))
    if run.lossy_reason:
        console.print(Text(f"LOSSY: {run.lossy_reason}", style="bold red"))
    if result.interrupted:
        console.print(Text("interrupted: what follows is of what was done until then", style="bold yellow"))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for row in (*_speed_rows(result), *_speculation_rows(result), *_latency_rows(result)):
        table.add_row(*row)
    console.print(table)
    if any(other.part != "plain" for other in result.comparisons) or result.left_out:
        console.print()
        console.print(comparison_table(result))
        for sentence in comparison_lines(result):
            console.print(Text(wrapped(sentence, console.width)), soft_wrap=True)
        console.print()
    for line in _closing_lines(result, telemetry):
        console.print(Text(line), soft_wrap=True)
    for request in result.failed:
        console.print(Text(f"failed: {request.error}", style="bold red"), soft_wrap=True)


def _speed_rows(result: SessionResult) -> list[tuple[str, str, str]]:
    summary, run = result.summary, result.run
    rows = [
        ("requests", f"{summary.num_requests:,.0f}", _of_requests(result)),
        ("output tokens", f"{summary.num_output_tokens:,.0f}", f"in {digits(run.duration)} s"),
        ("throughput", digits(summary.token_throughput), "tokens/s"),
    ]
    plain = result.plain
    if plain is not None:
        rows.append(
            ("  autoregressive", digits(plain.summary.token_throughput), "tokens/s, same prompts, same process")
        )
        verdict = "slower than autoregressive" if plain.speedup < 1 else "over autoregressive"
        rows.append(("  speedup", times(plain.speedup), verdict))
    return rows


def _of_requests(result: SessionResult) -> str:
    ended = {"failed": 0, "cancelled": 0}
    for request in result.requests:
        if request.status in ended:
            ended[request.status] += 1
    unsent = len(result.prompts) - len(result.requests)
    words = [f"{count} {status}" for status, count in ended.items() if count]
    words += [f"{unsent} not begun"] if unsent else []
    return ", ".join(["finished", *words])


def _speculation_rows(result: SessionResult) -> list[tuple[str, str, str]]:
    summary = result.summary
    rows = [
        ("mean acceptance length", digits(summary.mean_acceptance_length), "tokens a step, bonus included"),
        ("acceptance rate", percent(summary.acceptance_rate), "accepted of verified drafts"),
        ("draft yield", percent(summary.draft_yield), "accepted of drafted tokens"),
        ("budget ratio", percent(summary.budget_ratio), "verified of drafted tokens"),
    ]
    for name, share in result.arm_shares.items():
        rows.append((f"drafted by {name}" if name != "plain" else "without a draft", percent(share), "of steps"))
    return rows


def _latency_rows(result: SessionResult) -> list[tuple[str, str, str]]:
    summary = result.summary
    phases = result.phase_seconds
    rows = [
        ("TTFT", digits(1e3 * summary.ttft_mean), "ms to the first token, mean"),
        ("TPOT", digits(1e3 * summary.tpot_mean), "ms a further token, mean"),
    ]
    spent = ", ".join(f"{name} {digits(seconds)}" for name, seconds in phases.items() if seconds >= SHOWN_SECONDS)
    return [*rows, ("seconds by phase", digits(sum(phases.values())), spent)]


def _closing_lines(result: SessionResult, telemetry: Path | None) -> list[str]:
    lines = identity(result)
    notes = [note for note in result.run.notes if note != result.replayed]  # said above
    lines += [f"note: {note}" for note in gathered(notes)]
    if telemetry is not None:
        lines.append(f"telemetry: {telemetry}  (check it: specsim parity {telemetry})")
    return lines


def as_facts(result: SessionResult, setting: dict[str, Any], telemetry: Path | None) -> dict[str, Any]:
    """The same for machines, ready for JSON: null where a number does not exist, or tokens are fillers.

    setting    model and machine by name
    """
    from specsim.study.run_folder import run_facts

    outputs = [
        {
            "request_id": request.request_id,
            "prompt_id": result.prompts[request.request_id].id,
            "domain": request.domain,
            "finish_reason": request.finish_reason,
            "num_prompt_tokens": request.num_prompt_tokens,
            "num_output_tokens": len(request.token_ids),
            "token_ids": None if result.replayed else request.token_ids,
            "text": None if result.replayed else request.text,
            "error": request.error,
        }
        for request in result.requests
    ]
    return {
        **setting,
        "acceptance": result.replayed or "judged by the model",
        **run_facts(result.run, result.summary),
        "interrupted": result.interrupted,
        "arm_shares": result.arm_shares,
        "phase_seconds": result.phase_seconds,
        "autoregressive": None if result.plain is None else comparison_facts(result.plain),
        "comparisons": [comparison_facts(other) for other in result.comparisons],
        "not_compared": list(result.left_out),
        "telemetry": None if telemetry is None else str(telemetry),
        "outputs": outputs,
    }
