"""Every metric on numbers small enough to be computed by hand."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim import metrics
from specsim.core import DrafterSpec
from specsim.histogram import LogHistogram
from specsim.telemetry import REQUEST_DTYPE, Run, StepTotals

pytestmark = pytest.mark.filterwarnings("error")  # a division by zero is a metric that forgot to ask

DOCUMENT = Path(__file__).parents[1] / "docs" / "metrics.md"


# The numbered cases: faults other systems have had.


def test_case_28_one_of_three_accepted_is_a_rate_of_a_third():
    assert metrics.acceptance_rate(1, 3) == pytest.approx(1 / 3)  # with the bonus it would be 2/4


def test_case_29_draft_yield_uses_the_depth_each_step_really_had():
    num_drafted, num_accepted = 10 * 3 + 10 * 1, 10 * 2 + 10 * 1
    assert metrics.draft_yield(num_accepted, num_drafted) == 0.75  # 20 steps of depth 3 would give .50


def test_case_30_the_share_of_verified_and_of_drafted_have_their_own_names():
    assert metrics.acceptance_rate(45, 60) == 0.75
    assert metrics.draft_yield(45, 100) == 0.45
    assert metrics.named_rate(45, 60, "verified") == ("acceptance_rate", 0.75)
    assert metrics.named_rate(45, 100, "drafted") == ("draft_yield", 0.45)


def test_case_31_a_chunk_of_three_tokens_is_three_latencies_of_a_third():
    latencies = metrics.itl(np.full(10, 0.030), np.full(10, 3))
    assert len(latencies) == 30
    assert latencies == pytest.approx(np.full(30, 0.010))
    assert metrics.token_throughput(30, 10 * 0.030) == pytest.approx(100.0)


def test_case_32_per_step_and_per_request_are_two_numbers():
    num_steps, num_decoded = np.array([2, 10]), np.array([2 * 1, 10 * 4])
    num_accepted = int((num_decoded - num_steps).sum())  # a step commits its accepted drafts and one more token
    assert metrics.mean_acceptance_length(num_accepted, num_steps.sum()) == 3.5
    assert metrics.mean_acceptance_length_per_request(num_decoded, num_steps) == 2.5


def test_case_33_scheduled_drafts_are_their_own_denominator_and_undrafted_steps_count():
    num_scheduled = num_accepted = 10 * 2
    assert metrics.named_rate(num_accepted, num_scheduled, "scheduled") == ("scheduled_acceptance_rate", 1.0)
    assert metrics.mean_acceptance_length(num_accepted, 10 + 10) == 2.0
    assert metrics.mean_acceptance_length_of_drafts(num_accepted, 10) == 3.0  # what vLLM's counters say


def test_an_unknown_denominator_gets_no_name():
    with pytest.raises(ValueError, match=r"'proposed' is unknown; allowed: verified, tested, drafted, scheduled"):
        metrics.named_rate(1, 2, "proposed")


# Throughput and latency.


def test_throughput_is_tokens_over_seconds():
    assert metrics.token_throughput(600, 4.0) == 150.0
    assert metrics.steady_token_throughput(500, 2.5) == 200.0
    assert metrics.request_throughput(6, 4.0) == 1.5


def test_speedup_is_against_the_reference():
    assert metrics.speedup(150.0, 100.0) == 1.5


def test_ttft_and_e2e_count_from_the_arrival():
    arrived, first, finished = np.array([1.0, 2.0]), np.array([1.5, 4.0]), np.array([3.0, 9.0])
    assert metrics.ttft(arrived, first).tolist() == [0.5, 2.0]
    assert metrics.e2e(arrived, finished).tolist() == [2.0, 7.0]


def test_tpot_leaves_the_first_token_out_and_knows_nothing_of_a_single_token():
    values = metrics.tpot(np.array([1.0, 1.0]), np.array([2.0, 1.0]), np.array([11, 1]))
    assert values[0] == pytest.approx(0.1)
    assert math.isnan(values[1])


def test_itl_skips_chunks_without_tokens():
    assert metrics.itl(np.array([0.2, 0.5, 0.1]), np.array([2, 0, 1])).tolist() == [0.1, 0.1, 0.1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(1e-4, 10), st.integers(0, 16)), min_size=1, max_size=40))
def test_latencies_per_token_add_up_to_the_time_that_brought_tokens(chunks):
    gaps, tokens = np.array([gap for gap, _ in chunks]), np.array([number for _, number in chunks])
    latencies = metrics.itl(gaps, tokens)
    assert len(latencies) == tokens.sum()
    assert latencies.sum() == pytest.approx(gaps[tokens > 0].sum(), rel=1e-9)


def test_a_quantile_leaves_unknown_values_out():
    assert metrics.quantile(np.array([1.0, math.nan, 3.0]), 0.5) == 2.0
    assert math.isnan(metrics.quantile(np.array([math.nan]), 0.5))


def test_goodput_counts_requests_that_meet_both_bounds():
    firsts, further = np.array([0.1, 0.1, 0.9, 0.9]), np.array([0.01, 0.09, 0.01, 0.09])
    both = metrics.ServiceLevel(ttft_seconds=0.5, tpot_seconds=0.05)
    assert metrics.goodput(firsts, further, both, seconds=2.0) == 0.5
    assert metrics.goodput(firsts, further, metrics.ServiceLevel(ttft_seconds=0.5), seconds=2.0) == 1.0
    assert metrics.goodput(firsts, further, metrics.ServiceLevel(), seconds=2.0) == 2.0


def test_a_bound_that_is_just_kept_is_kept():
    slo = metrics.ServiceLevel(ttft_seconds=0.5, tpot_seconds=0.05)
    assert metrics.goodput(np.array([0.5]), np.array([0.05]), slo, seconds=1.0) == 1.0


def test_a_request_of_one_token_cannot_miss_a_time_per_further_token():
    slo = metrics.ServiceLevel(ttft_seconds=0.5, tpot_seconds=0.05)
    assert metrics.goodput(np.array([0.1]), np.array([math.nan]), slo, seconds=1.0) == 1.0


# Speculation. Six request-steps of depth 3: verified 3, 3, 2, 2, 1, 0; accepted 3, 1, 2, 0, 1, 0.


@pytest.fixture
def counts():
    table = np.zeros((4, 4), dtype=np.int64)
    for verified, accepted in ((3, 3), (3, 1), (2, 2), (2, 0), (1, 1), (0, 0)):
        table[verified, accepted] += 1
    return table


def test_survival_by_position_divides_by_what_was_verified_there(counts):
    # k=1: 4 of the 5 verified; k=2: 2 of 4; k=3: 1 of 2
    assert metrics.survival_by_position(counts) == pytest.approx([4 / 5, 2 / 4, 1 / 2])


def test_conditional_by_position_divides_by_what_was_tested_there(counts):
    tested = np.array([1, 2, 2, 1])  # (0,0) tested none, (2,0) (1,1) one, (3,1) (2,2) two, (3,3) three
    assert metrics.conditional_by_position(counts, tested) == pytest.approx([4 / 5, 2 / 3, 1 / 1])


def test_a_block_cut_by_the_end_of_its_request_is_no_rejection():
    counts = np.zeros((4, 4), dtype=np.int64)
    counts[3, 1] = 2  # once rejected at position 2, once ended there
    assert metrics.conditional_by_position(counts, np.array([0, 1, 1, 0]))[:2] == pytest.approx([1.0, 0.0])


def test_verified_by_position_divides_by_the_steps_that_drafted(counts):
    assert metrics.verified_by_position(counts, 6) == pytest.approx([5 / 6, 4 / 6, 2 / 6])


def test_a_position_never_verified_has_no_rate():
    counts = np.zeros((3, 3), dtype=np.int64)
    counts[1, 0] = 4
    assert metrics.survival_by_position(counts)[0] == 0.0
    assert math.isnan(metrics.survival_by_position(counts)[1])
    assert math.isnan(metrics.conditional_by_position(counts, np.array([0, 4, 0]))[1])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=60))
def test_when_everything_is_verified_survival_is_the_product_of_the_conditional_rates(lengths):
    counts, tested = np.zeros((8, 8), dtype=np.int64), np.zeros(8, dtype=np.int64)
    for accepted in lengths:
        counts[7, accepted] += 1
        tested[min(accepted + 1, 7)] += 1
    conditional = metrics.conditional_by_position(counts, tested)
    known = ~np.isnan(conditional)
    assert metrics.survival_by_position(counts)[known] == pytest.approx(np.cumprod(conditional[known]))


def test_budget_ratio_and_waste_by_hand():
    assert metrics.budget_ratio(60, 100) == 0.6
    assert metrics.wasted_verification(45, 60) == 0.25
    assert metrics.tested_acceptance_rate(45, 50) == 0.9


def test_a_ratio_of_nothing_is_unknown_not_zero():
    for value in (
        metrics.acceptance_rate(0, 0),
        metrics.draft_yield(0, 0),
        metrics.budget_ratio(0, 0),
        metrics.wasted_verification(0, 0),
        metrics.token_throughput(0, 0),
        metrics.mean_acceptance_length(0, 0),
        metrics.mean_acceptance_length_per_request(np.array([0]), np.array([0])),
    ):
        assert math.isnan(value)


def test_arm_share_is_of_decode_steps_plain_ones_included():
    assert metrics.arm_share(np.array([6, 3, 1])).tolist() == [0.6, 0.3, 0.1]
    assert np.isnan(metrics.arm_share(np.array([0, 0]))).all()


# Regret and resources.


def test_regret_is_the_share_of_the_reference_that_was_missed():
    assert metrics.regret(80.0, 100.0) == pytest.approx(0.2)
    assert metrics.regret(110.0, 100.0) == pytest.approx(-0.1)


def test_cumulative_regret_counts_tokens_behind_the_reference():
    behind = metrics.cumulative_regret(np.array([0.0, 1.0, 2.0]), np.array([0.0, 90.0, 210.0]), 100.0)
    assert behind.tolist() == [0.0, 10.0, -10.0]


def test_kv_use_is_block_seconds_over_what_was_there():
    assert metrics.kv_use(30.0, seconds=2.0, num_kv_blocks=60) == 0.25
    assert metrics.kv_use_peak(45, 60) == 0.75
    assert math.isnan(metrics.kv_use(30.0, seconds=2.0, num_kv_blocks=0))  # without a limit there is no share


def test_preemptions_are_counted_a_request():
    assert metrics.preemptions_per_request(3, 6) == 0.5


# A whole run.


@pytest.fixture
def run():
    """Two requests through one drafter of depth 2: 3 + 1 decode steps, one of which found nothing to draft."""
    drafter = DrafterSpec("ngram", "ngram", "point_mass", "parallel", ("drawn_prob",), 2)
    requests = np.zeros(2, REQUEST_DTYPE)
    requests["arrived_at"], requests["first_token_at"] = [0.0, 0.0], [0.1, 0.3]
    requests["finished_at"], requests["num_output_tokens"] = [0.7, 0.5], [7, 2]
    requests["num_steps"] = [3, 1]
    counts = np.zeros((1, 3, 3), np.int64)
    counts[0, 2, 2] = counts[0, 1, 1] = counts[0, 2, 0] = counts[0, 0, 0] = 1
    latencies = LogHistogram()
    latencies.add(metrics.itl(np.array([0.3, 0.2, 0.1, 0.2]), np.array([3, 2, 1, 1])), np.ones(7))
    totals = StepTotals(
        num_steps=6, num_decode_steps=4, request_steps=4, num_drafted=6, num_verified=5, num_tested=4,
        num_accepted=3, num_emitted=7, num_first=2, num_preemptions=1, kv_block_seconds=7.0, kv_blocks_peak=15,
    )  # fmt: skip
    return Run(
        label="dcut", drafters=(drafter,), seed=0, concurrency=2, duration=0.7, steady_at=0.5, steady_tokens=6,
        totals=totals, counts=counts, drafted=np.array([[1, 0, 3]]), tested=np.array([[1, 2, 1]]),
        arm_steps=np.array([4, 0]), arm_seconds=np.array([0.6, 0.0]), arm_tokens=np.array([7, 0]), itl=latencies,
        requests=requests, steps=None, num_kv_blocks=20, num_replicas=1,
    )  # fmt: skip


def test_the_summary_of_a_run_by_hand(run):
    summary = metrics.summarize(run, metrics.ServiceLevel(ttft_seconds=0.2, tpot_seconds=0.15))
    expected = {
        "num_requests": 2, "num_output_tokens": 9, "duration_seconds": 0.7, "token_throughput": 9 / 0.7,
        "steady_token_throughput": 6 / 0.5, "request_throughput": 2 / 0.7, "goodput": 1 / 0.7,
        "ttft_mean": 0.2, "ttft_p50": 0.2, "ttft_p90": 0.28, "ttft_p99": 0.298,
        "tpot_mean": 0.15, "tpot_p50": 0.15, "tpot_p90": 0.19, "tpot_p99": 0.199,
        "e2e_mean": 0.6, "e2e_p50": 0.6, "e2e_p90": 0.68, "e2e_p99": 0.698,
        "itl_mean": 0.8 / 7, "itl_std": math.sqrt((5 * 0.1**2 + 0.1**2 + 0.2**2) / 7 - (0.8 / 7) ** 2),
        "mean_acceptance_length": 1 + 3 / 4, "mean_acceptance_length_of_drafts": 1 + 3 / 3,
        "mean_acceptance_length_per_request": (6 / 3 + 1 / 1) / 2,
        "acceptance_rate": 3 / 5, "tested_acceptance_rate": 3 / 4, "draft_yield": 3 / 6, "budget_ratio": 5 / 6,
        "wasted_verification": 2 / 5, "num_decode_steps": 4, "mean_batch": 1.0, "mean_step_seconds": 0.6 / 4,
        "kv_use_mean": 7.0 / (0.7 * 20), "kv_use_peak": 0.75, "num_preemptions": 1, "preemptions_per_request": 0.5,
    }  # fmt: skip
    actual = dataclasses.asdict(summary)
    assert {name: actual[name] for name in expected} == pytest.approx(expected)
    assert set(actual) - set(expected) == {"itl_p50", "itl_p90", "itl_p99"}
    assert (summary.itl_p50, summary.itl_p99) == pytest.approx((0.1, 0.2), rel=0.0011)


def test_tokens_of_requests_that_were_still_running_count_in_the_throughput(run):
    run.requests = run.requests[:1]
    assert metrics.summarize(run).num_output_tokens == 9.0


def test_goodput_is_unknown_when_nothing_was_promised(run):
    assert math.isnan(metrics.summarize(run).goodput)


def test_a_run_without_drafts_has_a_length_of_one_and_no_rate(run):
    run.totals.num_accepted = run.totals.num_verified = run.totals.num_drafted = 0
    run.drafted = np.zeros((1, 3), np.int64)
    summary = metrics.summarize(run)
    assert summary.mean_acceptance_length == 1.0
    assert math.isnan(summary.acceptance_rate)
    assert math.isnan(summary.mean_acceptance_length_of_drafts)


def test_every_field_of_the_summary_is_documented():
    document = DOCUMENT.read_text()
    missing = [field.name for field in dataclasses.fields(metrics.Summary) if f"`{field.name}`" not in document]
    assert missing == []
