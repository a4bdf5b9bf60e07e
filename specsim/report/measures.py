"""The metrics that the report tabulates, with heading, unit and meaning, in reading order."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from specsim.report.wording import digits, milliseconds, percent, signed_percent, times
from specsim.study.result import Cell


@dataclass(frozen=True)
class Measure:
    """One column of the table of all metrics.

    field       of `metrics.Summary`, or of the cell itself
    heading     short name
    unit        what the number counts; empty for a pure number or one that carries its sign
    meaning     one line for a reader who meets it first
    write       turns the number into text
    """

    field: str
    heading: str
    unit: str
    meaning: str
    write: Callable[[float], str]

    def of(self, cell: Cell) -> float:
        """The number, NaN where the study has none."""
        if self.field == "difference_to_best_fixed":
            return cell.difference_to_best_fixed[0] if cell.difference_to_best_fixed else math.nan
        if self.field == "share_of_clairvoyant":
            return math.nan if cell.share_of_clairvoyant is None else cell.share_of_clairvoyant
        return cell.values.get(self.field, math.nan)

    def text(self, cell: Cell) -> str:
        """The number as it is shown."""
        return self.write(self.of(cell))


MEASURES: tuple[Measure, ...] = (
    Measure(
        "speedup",
        "speedup",
        "",
        "speed over that of autoregressive decoding: throughput, or 1 / mean latency where requests arrive at a rate",
        times,
    ),
    Measure("token_throughput", "throughput", "tokens/s", "output tokens a second over all requests", digits),
    Measure("difference_to_best_fixed", "vs best fixed", "", "speed against the best fixed policy", signed_percent),
    Measure("share_of_clairvoyant", "of bound", "", "speed as a share of the clairvoyant bound", percent),
    Measure("regret_to_best_arm", "regret", "", "speed short of the best single drafter's", percent),
    Measure("goodput", "goodput", "requests/s", "requests a second that met the latency bounds", digits),
    Measure(
        "mean_acceptance_length", "accept length", "tokens", "tokens a request emits a step, bonus included", digits
    ),
    Measure("acceptance_rate", "acceptance rate", "", "accepted / verified drafts", percent),
    Measure("draft_yield", "draft yield", "", "accepted / drafted tokens", percent),
    Measure("budget_ratio", "budget ratio", "", "verified / drafted tokens", percent),
    Measure("wasted_verification", "wasted", "", "verified drafts that were rejected", percent),
    Measure("ttft_p50", "TTFT p50", "ms", "time to first token, median", milliseconds),
    Measure("ttft_p99", "TTFT p99", "ms", "time to first token, 99th percentile", milliseconds),
    Measure("tpot_p50", "TPOT p50", "ms", "time per output token of a request, median", milliseconds),
    Measure("tpot_p99", "TPOT p99", "ms", "time per output token of a request, 99th percentile", milliseconds),
    Measure("itl_p50", "ITL p50", "ms", "time between tokens, median", milliseconds),
    Measure("itl_p99", "ITL p99", "ms", "time between tokens, 99th percentile", milliseconds),
    Measure("e2e_p50", "E2E p50", "s", "arrival to last token, median", digits),
    Measure("e2e_p99", "E2E p99", "s", "arrival to last token, 99th percentile", digits),
    Measure("mean_step_seconds", "step", "ms", "mean duration of an engine step", milliseconds),
    Measure("kv_use_mean", "KV use", "", "mean share of KV blocks in use", percent),
    Measure("num_preemptions", "preemptions", "", "requests pushed out of the cache and recomputed", digits),
)
