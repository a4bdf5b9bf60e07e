"""The live engine's metrics for Prometheus, under vLLM's names with the prefix `specsim:`.

A dashboard made for vLLM works when its prefix is changed. What vLLM has no name for is named here: drafts verified and
tested, arms, phases, tokens paid. All rows are one engine's.

Source: vLLM, vllm/v1/metrics/loggers.py and vllm/v1/spec_decode/metrics.py (names, meanings and buckets).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.core import DrafterSpec
from specsim.errors import InputError
from specsim.telemetry import FINISH_REASONS, REQUEST_DTYPE, STEP_DTYPE

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

PREFIX = "specsim:"
PLAIN = "plain"
"""The value of label `drafter` for steps without a draft."""

TTFT_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
TPOT_BUCKETS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
LATENCY_BUCKETS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip

GAUGES = {
    "num_requests_running": ("num_running", "Requests decoding or prefilling in the last step."),
    "num_requests_waiting": ("num_waiting", "Requests in the queue at the last step."),
    "kv_blocks_used": ("kv_blocks_used", "KV cache blocks in use at the last step."),
}
"""Gauges by name: the step's column, and what it means."""

STEP_COUNTERS = {
    "prompt_tokens": ("prefill_tokens", "Prompt tokens computed, those computed again after a preemption included."),
    "spec_decode_num_draft_tokens": ("num_drafted", "Draft tokens drafted."),
    "spec_decode_num_verified_tokens": ("num_verified", "Draft tokens the target verified."),
    "spec_decode_num_tested_tokens": (
        "num_tested",
        "Verified draft tokens that met an accept test: accepted, or the first rejected.",
    ),
    "spec_decode_num_accepted_tokens": (
        "num_accepted",
        "Draft tokens accepted. By num_tested_tokens: acceptance rate of a test; by num_verified_tokens: share of "
        "verification that was not wasted; by num_draft_tokens: draft yield, which vLLM calls acceptance rate.",
    ),
    "tokens_paid": ("num_tokens_paid", "Anchors and verified drafts, padded to the token bucket each step ran in."),
}
"""Counters that add up a column of the steps: name, column, meaning."""

PHASES = ("draft", "plan", "verify", "host", "switch", "prefill")

HISTOGRAMS = {
    "time_to_first_token_seconds": ("arrived_at", "first_token_at", TTFT_BUCKETS, "Arrival to first token."),
    "e2e_request_latency_seconds": ("arrived_at", "finished_at", LATENCY_BUCKETS, "Arrival to last token."),
    "request_queue_time_seconds": ("arrived_at", "admitted_at", LATENCY_BUCKETS, "Arrival to first admission."),
    "request_prefill_time_seconds": ("admitted_at", "first_token_at", LATENCY_BUCKETS, "Admission to first token."),
    "request_decode_time_seconds": ("first_token_at", "finished_at", LATENCY_BUCKETS, "First token to last token."),
}
"""Histograms of finished requests: name, the instants between which they measure, buckets, meaning."""


class PrometheusMetrics:
    """Counters, gauges and histograms that an engine fills step by step and request by request.

    registry        where they are registered (None: one of their own, so that two engines of a process do not clash)
    model_name      value of the label `model_name`
    drafters        the arms, index = arm
    num_kv_blocks   KV blocks the engine has (0: unknown, and `kv_cache_usage_perc` is left out)

    Raises          InputError when prometheus-client is not installed
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        model_name: str,
        drafters: Sequence[DrafterSpec],
        num_kv_blocks: int = 0,
    ) -> None:
        client = _client()
        self.registry = client.CollectorRegistry() if registry is None else registry
        self._model_name = model_name
        self._names = [*(spec.name for spec in drafters), PLAIN]  # arm -1 is the last
        self._num_kv_blocks = num_kv_blocks
        self._gauges = {name: self._make(client.Gauge, name, text) for name, (_, text) in GAUGES.items()}
        self._sums = {name: self._make(client.Counter, name, text) for name, (_, text) in STEP_COUNTERS.items()}
        self._histograms = {
            name: self._make(client.Histogram, name, text, buckets=buckets)
            for name, (_, _, buckets, text) in HISTOGRAMS.items()
        }
        self._make_own(client)

    def _make_own(self, client: Any) -> None:
        """Metrics that are more than a sum or the last value of one column."""
        make, counter = self._make, client.Counter
        if self._num_kv_blocks:
            self._kv_usage = make(client.Gauge, "kv_cache_usage_perc", "KV cache in use, 1 is all of it.")
        self._generated = make(
            counter, "generation_tokens", "Tokens emitted; a request's first, from its prefill, once it has finished."
        )
        self._drafts = make(
            counter, "spec_decode_num_drafts", "Drafts of one request in one step, empty ones excluded."
        )
        self._accepted_at = make(
            counter, "spec_decode_num_accepted_tokens_per_pos", "Accepted draft tokens by position.", ("position",)
        )
        self._drafted_at = make(
            counter, "spec_decode_num_draft_tokens_per_pos", "Drafted tokens by position.", ("position",)
        )
        self._steps = make(counter, "engine_steps", "Steps, those that only prefill included.")
        self._arm_steps = make(counter, "arm_steps", "Steps in which a request decoded, by drafter.", ("drafter",))
        self._phases = make(counter, "step_phase_seconds", "Seconds of the steps, by phase.", ("phase",))
        self._finished = make(counter, "request_success", "Finished requests, by reason.", ("finished_reason",))
        self._preemptions = make(counter, "num_preemptions", "Preemptions of requests that have finished.")
        self._tpot = make(
            client.Histogram,
            "request_time_per_output_token_seconds",
            "Mean seconds a token after the first, of requests with two tokens or more.",
            buckets=TPOT_BUCKETS,
        )

    def _make(self, kind: Any, name: str, text: str, labels: tuple[str, ...] = (), **options: Any) -> Any:
        """A metric of this model; with more labels, the parent of its children."""
        metric = kind(PREFIX + name, text, ["model_name", *labels], registry=self.registry, **options)
        return metric if labels else metric.labels(self._model_name)

    def observe_step(
        self, row: np.void, num_accepted_per_pos: Sequence[int], num_drafts_per_pos: Sequence[int]
    ) -> None:
        """Count one engine step.

        row                     a record of telemetry.STEP_DTYPE
        num_accepted_per_pos    [D] requests whose draft at each position was accepted; sums to the row's num_accepted
        num_drafts_per_pos      [D] requests with a draft at each position; sums to the row's num_drafted
        Raises                  ValueError when they do not
        """
        step = _as_dict(row, STEP_DTYPE)
        for values, column in ((num_accepted_per_pos, "num_accepted"), (num_drafts_per_pos, "num_drafted")):
            if sum(values) != step[column]:
                raise ValueError(f"{column} by position is {list(values)}; it must sum to the step's {step[column]}")
        for name, (column, _) in GAUGES.items():
            self._gauges[name].set(step[column])
        for name, (column, _) in STEP_COUNTERS.items():
            self._sums[name].inc(step[column])
        if self._num_kv_blocks:
            self._kv_usage.set(step["kv_blocks_used"] / self._num_kv_blocks)
        self._steps.inc()
        self._generated.inc(step["num_emitted"])
        if step["batch"]:
            self._arm_steps.labels(self._model_name, self._names[step["arm"]]).inc()
        for phase in PHASES:
            self._phases.labels(self._model_name, phase).inc(step[f"{phase}_seconds"])
        if len(num_drafts_per_pos):
            self._drafts.inc(int(num_drafts_per_pos[0]))
        self._count_positions(self._accepted_at, num_accepted_per_pos)
        self._count_positions(self._drafted_at, num_drafts_per_pos)

    def _count_positions(self, counter: Any, values: Sequence[int]) -> None:
        for position, value in enumerate(values):  # from 0, as vLLM counts
            counter.labels(self._model_name, str(position)).inc(int(value))

    def observe_request(self, row: np.void) -> None:
        """Count one finished request.

        row     a record of telemetry.REQUEST_DTYPE
        """
        request = _as_dict(row, REQUEST_DTYPE)
        for name, (begin, end, _, _) in HISTOGRAMS.items():
            self._histograms[name].observe(request[end] - request[begin])
        further = request["num_output_tokens"] - 1
        if further > 0:
            self._tpot.observe((request["finished_at"] - request["first_token_at"]) / further)
        self._generated.inc()
        self._preemptions.inc(request["num_preemptions"])
        self._finished.labels(self._model_name, FINISH_REASONS[request["finish_reason"]]).inc()

    def serve(self, port: int, address: str = "127.0.0.1") -> Any:
        """Answer `GET /metrics` in a thread of its own until the returned server's `shutdown()`.

        port        TCP port (0: a free one, told by the server's `server_port`)
        address     where to listen; 0.0.0.0 lets other machines in
        returns     the HTTP server
        Raises      InputError when the port cannot be had
        """
        check_port(port)
        try:
            server, _ = _client().start_http_server(port, addr=address, registry=self.registry)
        except (OSError, OverflowError) as error:
            raise InputError(f"metrics at {address}:{port}: {getattr(error, 'strerror', None) or error}") from None
        return server


def check_port(port: int) -> None:
    """Refuse what is no TCP port.

    Raises  InputError with what is allowed
    """
    if not 0 <= port <= 65535:
        raise InputError(f"metrics port {port}: must be from 1 to 65535, or 0 for a free one")


def _client() -> Any:
    try:
        import prometheus_client
    except ImportError:
        raise InputError(
            "serving metrics needs prometheus-client, not installed; remedy: pip install 'specsim-llm[live]'"
        ) from None
    return prometheus_client


def _as_dict(row: np.void, dtype: np.dtype) -> dict[str, Any]:
    """A record's values by name, as Python numbers."""
    assert row.dtype == dtype
    return dict(zip(dtype.names or (), row.item(), strict=True))
