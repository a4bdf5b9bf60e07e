"""Metrics as Prometheus reads them: what the text says, added up against the rows it was told."""

import builtins
import socket
import urllib.request

import numpy as np
import pytest

prometheus_client = pytest.importorskip("prometheus_client", reason="needs prometheus-client (extra `live`)")
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

from specsim.core import DrafterSpec  # noqa: E402
from specsim.errors import InputError  # noqa: E402
from specsim.live.prometheus import PHASES, PrometheusMetrics  # noqa: E402
from specsim.telemetry import FINISH_REASONS, REQUEST_DTYPE, STEP_DTYPE  # noqa: E402

DEPTH = 3
DRAFTERS = tuple(
    DrafterSpec(name, name, "point_mass", "parallel", ("drawn_prob",), DEPTH) for name in ("ngram", "exit")
)


def random_steps(rng, count=40):
    """[count] steps that are all different, and accepted and drafted counts by position, [count, DEPTH]."""
    steps = np.zeros(count, STEP_DTYPE)
    for name in STEP_DTYPE.names:
        steps[name] = rng.random(count) if name.endswith("_seconds") else rng.integers(0, 50, count)
    steps["arm"] = rng.integers(-1, len(DRAFTERS), count)
    drafted = -np.sort(-rng.integers(0, 9, (count, DEPTH)), axis=1)
    accepted = rng.integers(0, drafted + 1)
    steps["num_drafted"], steps["num_accepted"] = drafted.sum(axis=1), accepted.sum(axis=1)
    steps["batch"][::5] = 0
    return steps, accepted, drafted


def random_requests(rng, count=30):
    requests = np.zeros(count, REQUEST_DTYPE)
    instants = np.cumsum(rng.exponential(2.0, (count, 4)), axis=1)
    for column, values in zip(["arrived_at", "admitted_at", "first_token_at", "finished_at"], instants.T, strict=True):
        requests[column] = values
    requests["num_output_tokens"] = rng.integers(1, 20, count)
    requests["num_preemptions"] = rng.integers(0, 3, count)
    requests["finish_reason"] = rng.integers(0, 2, count)
    requests["num_output_tokens"][0] = 1
    return requests


def read(metrics):
    """Value by sample: its name, and its labels but for the model's; the model is checked on the way."""
    samples = {}
    for family in text_string_to_metric_families(prometheus_client.generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert sample.name.startswith("specsim:")
            assert labels.pop("model_name") == "tiny"
            if not sample.name.endswith("_created"):
                samples[(sample.name.removeprefix("specsim:"), *labels.values())] = sample.value
    return samples


@pytest.fixture
def observed():
    """Metrics of 40 steps and 30 requests, and the rows."""
    rng = np.random.default_rng(3)
    metrics = PrometheusMetrics(model_name="tiny", drafters=DRAFTERS, num_kv_blocks=64)
    steps, accepted, drafted = random_steps(rng)
    requests = random_requests(rng)
    for row in zip(steps, accepted, drafted, strict=True):
        metrics.observe_step(*row)
    for row in requests:
        metrics.observe_request(row)
    return read(metrics), steps, accepted, drafted, requests


def test_counters_are_the_sums_over_the_steps_with_every_denominator_named(observed):
    samples, steps, _, drafted, _ = observed
    expected = {
        "prompt_tokens": steps["prefill_tokens"],
        "spec_decode_num_drafts": drafted[:, 0],
        "spec_decode_num_draft_tokens": steps["num_drafted"],
        "spec_decode_num_verified_tokens": steps["num_verified"],
        "spec_decode_num_tested_tokens": steps["num_tested"],
        "spec_decode_num_accepted_tokens": steps["num_accepted"],
        "tokens_paid": steps["num_tokens_paid"],
        "engine_steps": np.ones(len(steps)),
    }
    assert {name: samples[f"{name}_total",] for name in expected} == {n: v.sum() for n, v in expected.items()}


def test_tokens_generated_are_those_of_the_steps_and_one_first_token_a_request(observed):
    samples, steps, _, _, requests = observed
    assert samples["generation_tokens_total",] == steps["num_emitted"].sum() + len(requests)


def test_positions_count_from_zero_and_add_up(observed):
    samples, _, accepted, drafted, _ = observed
    for position in range(DEPTH):
        at = str(position)
        assert samples["spec_decode_num_accepted_tokens_per_pos_total", at] == accepted[:, position].sum()
        assert samples["spec_decode_num_draft_tokens_per_pos_total", at] == drafted[:, position].sum()
    assert ("spec_decode_num_draft_tokens_per_pos_total", str(DEPTH)) not in samples


def test_arms_have_their_drafters_names_and_steps_that_only_prefill_have_none(observed):
    samples, steps, *_ = observed
    decoding = steps["batch"] > 0
    assert not decoding.all()
    for arm, name in [(0, "ngram"), (1, "exit"), (-1, "plain")]:
        assert samples["arm_steps_total", name] == (decoding & (steps["arm"] == arm)).sum() > 0


def test_seconds_are_told_by_phase_and_every_phase_of_a_step_is_one(observed):
    samples, steps, *_ = observed
    assert {f"{phase}_seconds" for phase in PHASES} == {name for name in STEP_DTYPE.names if name.endswith("_seconds")}
    for phase in PHASES:
        assert samples["step_phase_seconds_total", phase] == pytest.approx(steps[f"{phase}_seconds"].sum(), rel=1e-12)


def test_gauges_say_what_the_last_step_said(observed):
    samples, steps, *_ = observed
    assert samples["num_requests_running",] == steps["num_running"][-1]
    assert samples["num_requests_waiting",] == steps["num_waiting"][-1]
    assert samples["kv_blocks_used",] == steps["kv_blocks_used"][-1]
    assert samples["kv_cache_usage_perc",] == steps["kv_blocks_used"][-1] / 64


def test_without_a_known_capacity_no_usage_is_made_up():
    metrics = PrometheusMetrics(model_name="tiny", drafters=DRAFTERS)
    metrics.observe_step(np.zeros(1, STEP_DTYPE)[0], [], [])
    assert ("kv_cache_usage_perc",) not in read(metrics)


def test_histograms_measure_between_the_instants_their_names_say(observed):
    samples, *_, requests = observed
    between = {
        "time_to_first_token_seconds": ("arrived_at", "first_token_at"),
        "e2e_request_latency_seconds": ("arrived_at", "finished_at"),
        "request_queue_time_seconds": ("arrived_at", "admitted_at"),
        "request_prefill_time_seconds": ("admitted_at", "first_token_at"),
        "request_decode_time_seconds": ("first_token_at", "finished_at"),
    }
    for name, (begin, end) in between.items():
        seconds = requests[end] - requests[begin]
        assert samples[f"{name}_sum",] == pytest.approx(seconds.sum()), name
        assert samples[f"{name}_count",] == len(requests)
        assert samples[f"{name}_bucket", "2.5"] == (seconds <= 2.5).sum(), name


def test_time_per_output_token_leaves_out_the_first_token_and_requests_of_one(observed):
    samples, *_, requests = observed
    longer = requests[requests["num_output_tokens"] > 1]
    each = (longer["finished_at"] - longer["first_token_at"]) / (longer["num_output_tokens"] - 1)
    assert 0 < len(longer) < len(requests)
    assert samples["request_time_per_output_token_seconds_count",] == len(longer)
    assert samples["request_time_per_output_token_seconds_sum",] == pytest.approx(each.sum())


def test_finished_requests_are_told_by_reason(observed):
    samples, *_, requests = observed
    assert samples["num_preemptions_total",] == requests["num_preemptions"].sum()
    for code, reason in enumerate(FINISH_REASONS):
        assert samples["request_success_total", reason] == (requests["finish_reason"] == code).sum() > 0


def test_counts_by_position_that_do_not_add_up_are_refused_before_anything_is_counted():
    metrics = PrometheusMetrics(model_name="tiny", drafters=DRAFTERS)
    step = np.zeros(1, STEP_DTYPE)[0]
    step["num_drafted"], step["num_accepted"] = 5, 2
    with pytest.raises(ValueError, match=r"num_accepted by position is \[1, 0, 0\]; it must sum to the step's 2"):
        metrics.observe_step(step, [1, 0, 0], [2, 2, 1])
    with pytest.raises(ValueError, match="num_drafted by position"):
        metrics.observe_step(step, [1, 1, 0], [2, 2, 2])
    assert read(metrics)["engine_steps_total",] == 0


def test_two_engines_of_one_process_do_not_clash_unless_they_share_a_registry():
    first = PrometheusMetrics(model_name="tiny", drafters=DRAFTERS)
    PrometheusMetrics(model_name="tiny", drafters=DRAFTERS)
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusMetrics(first.registry, model_name="tiny", drafters=DRAFTERS)


def test_metrics_are_served_over_http_and_a_taken_port_is_one_line():
    metrics = PrometheusMetrics(model_name="tiny", drafters=DRAFTERS)
    server = metrics.serve(0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as answer:
            assert b'specsim:num_requests_running{model_name="tiny"} 0.0' in answer.read()
    finally:
        server.shutdown()
        server.server_close()
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match=r"metrics at 127\.0\.0\.1:"):
        metrics.serve(taken.getsockname()[1])


def test_without_the_client_library_one_line_says_what_to_install(monkeypatch):
    present = builtins.__import__

    def absent(name, *arguments, **options):
        if name == "prometheus_client":
            raise ImportError(name)
        return present(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(InputError, match=r"needs prometheus-client, not installed; remedy: pip install"):
        PrometheusMetrics(model_name="tiny", drafters=DRAFTERS)
