"""A tuning on a terminal of 80 columns."""

from __future__ import annotations

from pydantic import JsonValue
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specsim.report.wording import digits, milliseconds, signed_percent
from specsim.study.tune_result import Gain, Trial, TuneResult

MOST_TRIALS = 5
WIDEST = 24


def render_tuning(result: TuneResult, console: Console) -> None:
    """Print a tuning: the options, the gain on both halves, the best trials, the verdict.

    result      what was found
    console     where
    """
    what = "throughput" if result.objective == "throughput" else "p99 TPOT"
    console.print(Text(f"{result.default} tuned for {what}", style="bold"))
    console.print(Text(_setting(result), style="dim"))
    console.print()
    console.print(_options(result))
    console.print()
    console.print(_gains(result))
    console.print()
    console.print(_best_trials(result))
    console.print()
    for sentence in result.verdict:
        console.print(Text(sentence, style="bold"))
    console.print(Text(f"Tuned: {result.tuned}"), soft_wrap=True)
    if result.lossy_reason:
        console.print(Text(f"LOSSY: {result.lossy_reason}", style="bold red"))
    for note in result.notes:
        console.print(Text(f"note: {note}", style="dim"))


def _setting(result: TuneResult) -> str:
    how = "every combination" if result.exhaustive else f"sampler seed {result.seed}"
    halves = result.num_requests
    return (
        f"trace {result.trace}: tuned on {halves['tuning']} requests, validated on {halves['validation']} others;"
        f" cost table {result.table}; {len(result.trials)} trials ({how}), {len(result.seeds)} seeds each"
    )


def _options(result: TuneResult) -> Table:
    table = _table("option", "default", "tuned", "searched")
    for name, searched in result.searched.items():
        default = result.default_options.get(name)
        table.add_row(
            name, "as shipped" if default is None else _value(default), *_tuned(result, name, default), _short(searched)
        )
    return table


def _tuned(result: TuneResult, name: str, default: JsonValue) -> list[Text]:
    value = result.tuned_options.get(name, default)
    return [Text(_value(value), style="" if value == default else "bold green")]


def _gains(result: TuneResult) -> Table:
    unit = "speedup" if result.objective == "throughput" else "ms"
    table = _table("half, batch", f"default, {unit}", f"tuned, {unit}", "gain", "90 % interval", right=4)
    table.add_row("tuning, all", *_gain(result, result.gains["tuning"]))
    table.add_row("validation, all", *_gain(result, result.gains["validation"]), style="bold")
    if len(result.batches) > 1:
        for batch, gain in zip(result.batches, result.by_batch, strict=True):
            table.add_row(f"validation, {batch}", *_gain(result, gain))
    return table


def _gain(result: TuneResult, gain: Gain) -> list[str]:
    interval = f"{signed_percent(gain.low)} to {signed_percent(gain.high)}"
    return [_score(result, gain.default), _score(result, gain.tuned), signed_percent(gain.gain), interval]


def _score(result: TuneResult, score: float) -> str:
    return digits(score) if result.objective == "throughput" else milliseconds(score)


def _best_trials(result: TuneResult) -> Table:
    ran = [trial for trial in result.trials if trial.score is not None]
    best = sorted(ran, key=lambda t: (t.score or 0.0) * (-1 if result.objective == "throughput" else 1))
    unit = "speedup" if result.objective == "throughput" else "ms"
    table = _table("trial", "best on the tuning half", unit, right=1)
    for trial in best[:MOST_TRIALS]:
        table.add_row(str(trial.number), Text(_named(trial, result)), _score(result, trial.score or 0.0))
    return table


def _named(trial: Trial, result: TuneResult) -> str:
    """The options in which a trial differs from the default."""
    if trial.number == 0:
        return "default"
    known = result.default_options
    changed = {n: v for n, v in trial.options.items() if n not in known or known[n] != v}
    return ", ".join(f"{name}={_value(value)}" for name, value in changed.items())


def _value(value: JsonValue) -> str:
    return _short(f"{value:g}" if isinstance(value, float) else str(value))


def _short(text: str) -> str:
    """Long lists of values lose their end."""
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."


def _table(*headings: str, right: int = 0) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index >= len(headings) - right else "left", overflow="fold")
    return table
