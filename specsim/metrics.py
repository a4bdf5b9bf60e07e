"""Every number specsim reports: one pure function a metric, its formula in the docstring.

A rate always says its denominator. A ratio without observations is NaN, never 0. Seconds and tokens throughout.
Axes in shape brackets: N requests, D draft positions, A arms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from specsim.telemetry import Run

Denominator: TypeAlias = Literal["verified", "tested", "drafted", "scheduled"]

RATE_NAMES: dict[Denominator, str] = {
    "verified": "acceptance_rate",
    "tested": "tested_acceptance_rate",
    "drafted": "draft_yield",
    "scheduled": "scheduled_acceptance_rate",
}
"""The one name of accepted / denominator for each denominator."""


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """The latencies a request must keep to count as good.

    ttft_seconds    most time to the first token
    tpot_seconds    most mean time per further token
    """

    ttft_seconds: float = math.inf
    tpot_seconds: float = math.inf


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator > 0 else math.nan


def token_throughput(num_tokens: float, seconds: float) -> float:
    """Output tokens / seconds, over the whole run: tokens/s."""
    return _ratio(num_tokens, seconds)


def steady_token_throughput(steady_tokens: float, steady_at: float) -> float:
    """Output tokens until the first slot could not be refilled / seconds until then: tokens/s.

    What a closed loop sustains; its drain, when ever fewer requests run, would favour whoever is fast alone.
    """
    return _ratio(steady_tokens, steady_at)


def request_throughput(num_requests: float, seconds: float) -> float:
    """Finished requests / seconds: requests/s."""
    return _ratio(num_requests, seconds)


def speedup(throughput: float, reference_throughput: float) -> float:
    """Throughput / throughput of the autoregressive run of the same workload."""
    return _ratio(throughput, reference_throughput)


def ttft(arrived_at: np.ndarray, first_token_at: np.ndarray) -> np.ndarray:
    """[N] first_token_at - arrived_at, seconds: queueing and prefill, not decoding."""
    seconds: np.ndarray = first_token_at - arrived_at
    return seconds


def tpot(first_token_at: np.ndarray, finished_at: np.ndarray, num_output_tokens: np.ndarray) -> np.ndarray:
    """[N] (finished_at - first_token_at) / (num_output_tokens - 1), seconds; NaN for a request of one token."""
    further = num_output_tokens - 1
    seconds = finished_at - first_token_at
    return np.where(further > 0, seconds / np.maximum(further, 1), math.nan)


def itl(gap_seconds: np.ndarray, num_tokens: np.ndarray) -> np.ndarray:
    """One latency a token: gap / n, n times, for each chunk of n tokens that came gap seconds after the last.

    gap_seconds     [chunks] float64, seconds since the request's chunk before
    num_tokens      [chunks] int64, tokens of the chunk
    returns         [tokens] float64, seconds
    """
    kept = num_tokens > 0
    return np.repeat(gap_seconds[kept] / num_tokens[kept], num_tokens[kept])


def e2e(arrived_at: np.ndarray, finished_at: np.ndarray) -> np.ndarray:
    """[N] finished_at - arrived_at, seconds."""
    seconds: np.ndarray = finished_at - arrived_at
    return seconds


def quantile(values: np.ndarray, fraction: float) -> float:
    """The value at `fraction` of the sorted ones, interpolated linearly; NaN values are left out."""
    known = values[~np.isnan(values)]
    return float(np.quantile(known, fraction)) if len(known) else math.nan


def goodput(ttft_seconds: np.ndarray, tpot_seconds: np.ndarray, slo: ServiceLevel, seconds: float) -> float:
    """Requests with ttft <= slo.ttft and tpot <= slo.tpot / seconds: requests/s, not tokens/s.

    A request of one token has no TPOT and cannot miss it.
    """
    good = (ttft_seconds <= slo.ttft_seconds) & ((tpot_seconds <= slo.tpot_seconds) | np.isnan(tpot_seconds))
    return _ratio(float(np.count_nonzero(good)), seconds)


def mean_acceptance_length(num_accepted: float, request_steps: float) -> float:
    """1 + accepted drafts / decode steps summed over requests, bonus included, undrafted steps too."""
    return 1.0 + _ratio(num_accepted, request_steps)


def mean_acceptance_length_of_drafts(num_accepted: float, drafted_request_steps: float) -> float:
    """1 + accepted drafts / request-steps that drafted at all, as vLLM counts: blind to steps left undrafted."""
    return 1.0 + _ratio(num_accepted, drafted_request_steps)


def mean_acceptance_length_per_request(num_decoded: np.ndarray, num_steps: np.ndarray) -> float:
    """Mean over requests of decoded tokens / decode steps: every request weighs the same, however short.

    num_decoded     [N] int64, output tokens after the first, which prefill yields
    num_steps       [N] int64, decode steps; requests without any are left out
    """
    decoding = num_steps > 0
    return float(np.mean(num_decoded[decoding] / num_steps[decoding])) if decoding.any() else math.nan


def acceptance_rate(num_accepted: float, num_verified: float) -> float:
    """Accepted drafts / verified drafts: no bonus token above, no anchor below."""
    return _ratio(num_accepted, num_verified)


def tested_acceptance_rate(num_accepted: float, num_tested: float) -> float:
    """Accepted drafts / drafts that met an accept test (accepted, or the first rejected of a block)."""
    return _ratio(num_accepted, num_tested)


def draft_yield(num_accepted: float, num_drafted: float) -> float:
    """Accepted drafts / drafted tokens, each step with the depth it really had."""
    return _ratio(num_accepted, num_drafted)


def named_rate(num_accepted: float, num_offered: float, denominator: Denominator) -> tuple[str, float]:
    """Accepted / offered under the only name its denominator allows, for counters made elsewhere.

    denominator     what `num_offered` counts; `scheduled` is what an engine planned to verify
    returns         the metric's name and value
    Raises          ValueError when the denominator is unknown
    """
    if denominator not in RATE_NAMES:
        raise ValueError(f"denominator {denominator!r} is unknown; allowed: {', '.join(RATE_NAMES)}")
    return RATE_NAMES[denominator], _ratio(num_accepted, num_offered)


def budget_ratio(num_verified: float, num_drafted: float) -> float:
    """Verified drafts / drafted tokens: how much of the drafting the target was asked about."""
    return _ratio(num_verified, num_drafted)


def wasted_verification(num_accepted: float, num_verified: float) -> float:
    """(Verified - accepted) / verified drafts."""
    return _ratio(num_verified - num_accepted, num_verified)


def survival_by_position(counts: np.ndarray) -> np.ndarray:
    """[D] request-steps that accepted k drafts or more / request-steps that verified k or more.

    counts      [D + 1, D + 1] int64, request-steps by verified and accepted drafts
    returns     float64, NaN where position k was never verified
    """
    return _position_ratio(_reached(counts), _verified_to(counts))


def conditional_by_position(counts: np.ndarray, tested: np.ndarray) -> np.ndarray:
    """[D] request-steps that accepted k drafts or more / those in which k or more met an accept test.

    counts      [D + 1, D + 1] int64, request-steps by verified and accepted drafts
    tested      [D + 1] int64, request-steps by drafts that met an accept test
    returns     float64, NaN where position k was never tested
    """
    reached = np.array([tested[k:].sum() for k in range(1, len(tested))], dtype=np.float64)
    return _position_ratio(_reached(counts), reached)


def verified_by_position(counts: np.ndarray, drafted_request_steps: float) -> np.ndarray:
    """[D] request-steps that verified k drafts or more / request-steps that drafted."""
    verified = _verified_to(counts)
    return _position_ratio(verified, np.full(len(verified), float(drafted_request_steps)))


def _reached(counts: np.ndarray) -> np.ndarray:
    return np.array([counts[:, k:].sum() for k in range(1, counts.shape[0])], dtype=np.float64)


def _verified_to(counts: np.ndarray) -> np.ndarray:
    return np.array([counts[k:, :].sum() for k in range(1, counts.shape[0])], dtype=np.float64)


def _position_ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.where(denominator > 0, numerator / np.maximum(denominator, 1.0), math.nan)


def arm_share(arm_steps: np.ndarray) -> np.ndarray:
    """[A + 1] decode steps of each arm / decode steps; the last is the plain step."""
    total = arm_steps.sum()
    return arm_steps / total if total else np.full(len(arm_steps), math.nan)


def regret(throughput: float, reference_throughput: float) -> float:
    """1 - throughput / that of a reference choice (best fixed one, clairvoyant bound); negative when ahead of it."""
    return 1.0 - _ratio(throughput, reference_throughput)


def cumulative_regret(elapsed: np.ndarray, num_tokens: np.ndarray, reference_throughput: float) -> np.ndarray:
    """[instants] reference_throughput * elapsed - tokens so far: tokens behind the reference choice."""
    behind: np.ndarray = reference_throughput * elapsed - num_tokens
    return behind


def kv_use(kv_block_seconds: float, seconds: float, num_kv_blocks: float) -> float:
    """Block-seconds held / (seconds * blocks of all replicas): mean share of the cache in use."""
    return _ratio(kv_block_seconds, seconds * num_kv_blocks)


def kv_use_peak(kv_blocks_peak: float, num_kv_blocks: float) -> float:
    """Most blocks ever held on one replica / blocks of one replica."""
    return _ratio(kv_blocks_peak, num_kv_blocks)


def preemptions_per_request(num_preemptions: float, num_requests: float) -> float:
    """Preemptions / finished requests."""
    return _ratio(num_preemptions, num_requests)


@dataclass(frozen=True, slots=True)
class Summary:
    """The metrics of one run as plain floats; each is the function of its name (docs/metrics.md)."""

    num_requests: float
    num_output_tokens: float
    duration_seconds: float
    token_throughput: float
    steady_token_throughput: float
    request_throughput: float
    goodput: float
    ttft_mean: float
    ttft_p50: float
    ttft_p90: float
    ttft_p99: float
    tpot_mean: float
    tpot_p50: float
    tpot_p90: float
    tpot_p99: float
    itl_mean: float
    itl_std: float
    itl_p50: float
    itl_p90: float
    itl_p99: float
    e2e_mean: float
    e2e_p50: float
    e2e_p90: float
    e2e_p99: float
    mean_acceptance_length: float
    mean_acceptance_length_of_drafts: float
    mean_acceptance_length_per_request: float
    acceptance_rate: float
    tested_acceptance_rate: float
    draft_yield: float
    budget_ratio: float
    wasted_verification: float
    num_decode_steps: float
    mean_batch: float
    mean_step_seconds: float
    kv_use_mean: float
    kv_use_peak: float
    num_preemptions: float
    preemptions_per_request: float


def summarize(run: Run, slo: ServiceLevel | None = None) -> Summary:
    """Every metric of one run.

    run         what the run left behind
    slo         bounds of `goodput` (None: goodput is NaN, for nothing was promised)
    """
    requests = run.requests
    firsts = ttft(requests["arrived_at"], requests["first_token_at"])
    further = tpot(requests["first_token_at"], requests["finished_at"], requests["num_output_tokens"])
    num_tokens = float(run.totals.num_first + run.totals.num_emitted)  # unfinished requests' tokens too
    return Summary(
        num_requests=float(len(requests)),
        num_output_tokens=num_tokens,
        duration_seconds=float(run.duration),
        token_throughput=token_throughput(num_tokens, run.duration),
        steady_token_throughput=steady_token_throughput(run.steady_tokens, run.steady_at),
        request_throughput=request_throughput(len(requests), run.duration),
        goodput=math.nan if slo is None else goodput(firsts, further, slo, run.duration),
        **_quantiles("ttft", firsts),
        **_quantiles("tpot", further),
        itl_mean=run.itl.mean(),
        itl_std=math.sqrt(run.itl.variance()),
        itl_p50=run.itl.quantile(0.5),
        itl_p90=run.itl.quantile(0.9),
        itl_p99=run.itl.quantile(0.99),
        **_quantiles("e2e", e2e(requests["arrived_at"], requests["finished_at"])),
        **_speculation(run),
        **_resources(run),
    )


def _quantiles(name: str, values: np.ndarray) -> dict[str, float]:
    known = values[~np.isnan(values)]
    return {
        f"{name}_mean": float(known.mean()) if len(known) else math.nan,
        f"{name}_p50": quantile(known, 0.5),
        f"{name}_p90": quantile(known, 0.9),
        f"{name}_p99": quantile(known, 0.99),
    }


def _speculation(run: Run) -> dict[str, float]:
    totals, requests = run.totals, run.requests
    drafted_request_steps = float(run.drafted[:, 1:].sum())
    return {
        "mean_acceptance_length": mean_acceptance_length(totals.num_accepted, totals.request_steps),
        "mean_acceptance_length_of_drafts": mean_acceptance_length_of_drafts(
            totals.num_accepted, drafted_request_steps
        ),
        "mean_acceptance_length_per_request": mean_acceptance_length_per_request(
            requests["num_output_tokens"] - 1, requests["num_steps"]
        ),
        "acceptance_rate": acceptance_rate(totals.num_accepted, totals.num_verified),
        "tested_acceptance_rate": tested_acceptance_rate(totals.num_accepted, totals.num_tested),
        "draft_yield": draft_yield(totals.num_accepted, totals.num_drafted),
        "budget_ratio": budget_ratio(totals.num_verified, totals.num_drafted),
        "wasted_verification": wasted_verification(totals.num_accepted, totals.num_verified),
    }


def _resources(run: Run) -> dict[str, float]:
    totals = run.totals
    decode_seconds = float(run.arm_seconds.sum())
    return {
        "num_decode_steps": float(totals.num_decode_steps),
        "mean_batch": _ratio(totals.request_steps, totals.num_decode_steps),
        "mean_step_seconds": _ratio(decode_seconds, totals.num_decode_steps),
        "kv_use_mean": kv_use(totals.kv_block_seconds, run.duration, run.num_kv_blocks * run.num_replicas),
        "kv_use_peak": kv_use_peak(totals.kv_blocks_peak, run.num_kv_blocks),
        "num_preemptions": float(totals.num_preemptions),
        "preemptions_per_request": preemptions_per_request(totals.num_preemptions, len(run.requests)),
    }
