from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.errors import InputError
from specsim.trace import RecordedBlocks, RequestRow, Trace, TraceWriter
from specsim.trace.statistics import (
    acceptance_by_position,
    area_under_curve,
    by_domain,
    calibration,
    mean_acceptance_length,
    reliability,
    walk,
)
from tests.trace.traces import drafter, edit_manifest, manifest

# One request of 6 tokens, 3 drafts a block except at p = 3 (one draft). Verified: min(drafts, 6 - p).
#   p              0  1  2  3  4  5
NUM_DRAFTS = [3, 3, 3, 1, 3, 3]
NUM_VERIFIED = [3, 3, 3, 1, 2, 1]
NUM_ACCEPTED = [3, 1, 0, 1, 2, 0]
CONFIDENCE = [[0.95, 0.8, 0.7], [0.95, 0.2, 0.7], [0.35, 0.8, 0.7], [0.65], [0.95, 0.8, 0.7], [0.15, 0.8, 0.7]]


@pytest.fixture
def trace(tmp_path):
    writer = TraceWriter(tmp_path / "trace", manifest(drafter("only", max_depth=3)))
    first = RecordedBlocks(NUM_DRAFTS, NUM_ACCEPTED, NUM_VERIFIED, CONFIDENCE)
    writer.add(RequestRow(1, "chat", 1, 6, "stop"), {"only": first})
    second = RecordedBlocks([1, 1, 1], [1, 1, 1], [1, 1, 1], [[1.0], [1.0], [1.0]])
    writer.add(RequestRow(2, "code", 1, 3, "stop"), {"only": second})
    writer.finish()
    return Trace.open(tmp_path / "trace")


def test_survival_leaves_out_what_was_censored(trace):
    found = acceptance_by_position(trace, 0, requests=[0])
    # k=1: all six known; k=2: p=5 censored; k=3: p=4 and p=5 censored. A block of one draft does not survive to k=2.
    assert found.num_blocks.tolist() == [6, 5, 4]
    assert found.num_survived.tolist() == [4, 2, 1]
    assert found.survival.tolist() == [4 / 6, 2 / 5, 1 / 4]


def test_conditional_acceptance_counts_tested_drafts(trace):
    found = acceptance_by_position(trace, 0, requests=[0])
    # k=2 is tested at p = 0, 1, 4 (reached, drafted and observed) and accepted at 0 and 4; k=3 only at p = 0.
    assert found.num_tested.tolist() == [6, 3, 1]
    assert found.num_accepted.tolist() == [4, 2, 1]
    assert found.conditional.tolist() == [4 / 6, 2 / 3, 1.0]


def test_a_position_nobody_tested_has_no_rate(trace):
    found = acceptance_by_position(trace, 0, requests=[1])
    assert found.num_tested.tolist() == [3, 0, 0]
    assert found.survival.tolist() == [1.0, 0.0, 0.0]
    assert [math.isnan(rate) for rate in found.conditional] == [False, True, True]


def test_the_walk_starts_after_the_prefill_s_token_and_jumps_over_what_it_emitted(trace):
    # p = 1 accepts 1, then p = 3 accepts 1, then p = 5 accepts 0.
    found = walk(trace, 0, requests=[0])
    assert (found.num_steps, found.num_accepted, found.num_emitted) == (3, 2, 5)
    assert found.mean_acceptance_length == 1 + 2 / 3


def test_a_shallower_walk_takes_the_smaller_of_accepted_and_depth(trace):
    found = walk(trace, 0, requests=[0], depth=0)
    assert (found.num_steps, found.num_accepted) == (5, 0)
    # Request 2: p = 1 accepts its one draft and is done.
    assert walk(trace, 0, requests=[1]).num_steps == 1
    assert walk(trace, 0).num_steps == 4


def test_an_output_of_one_token_takes_no_step(tmp_path):
    writer = TraceWriter(tmp_path / "trace", manifest(drafter("only")))
    writer.add(RequestRow(1, "chat", 1, 1, "stop"), {"only": RecordedBlocks([1], [0], [1], [[0.5]])})
    writer.finish()
    found = walk(Trace.open(tmp_path / "trace"), 0)
    assert (found.num_steps, found.num_emitted) == (0, 0)
    assert math.isnan(found.mean_acceptance_length)


def test_a_walk_needs_every_position(trace):
    edit_manifest(trace.path, lambda record: record.update(kind="trajectory"))
    with pytest.raises(InputError, match="a walk over a trajectory trace"):
        walk(Trace.open(trace.path), 0)


def test_the_mean_over_all_positions_weighs_each_once(trace):
    assert mean_acceptance_length(trace, 0, requests=[0]) == 1 + 7 / 6
    assert mean_acceptance_length(trace, 0) == 1 + 10 / 9
    assert math.isnan(mean_acceptance_length(trace, 0, requests=[]))


def test_domains_are_told_apart(trace):
    assert by_domain(trace, lambda members: walk(trace, 0, members).num_steps) == {"chat": 3, "code": 1}
    assert by_domain(trace.slice(domains=["code"]), len) == {"code": 1}


def test_calibration_pairs_confidence_with_acceptance_of_tested_drafts(trace):
    found = calibration(trace, 0, requests=[0])
    # Tested at k=1: .95 .95 .35 .65 .95 .15, accepted 1 1 0 1 1 0; at k=2: .8 .2 .8, accepted 1 0 1; at k=3: .7, yes.
    assert [int(position.count.sum()) for position in found.by_position] == [6, 3, 1]
    assert int(found.pooled.count.sum()) == 10
    first = found.by_position[0]
    assert first.count.tolist() == [0, 1, 0, 1, 0, 0, 1, 0, 0, 3]
    assert first.acceptance_rate[[1, 3, 6, 9]].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert first.auc == 1.0
    assert first.expected_calibration_error == pytest.approx((0.15 + 0.35 + 0.35 + 3 * 0.05) / 6, abs=1e-7)
    assert math.isnan(found.by_position[2].auc)


def test_bins_hold_their_lower_edge_and_the_last_one_holds_one():
    found = reliability(np.array([0.0, 0.5, 0.75, 1.0]), np.array([False, True, True, False]), num_bins=4)
    assert found.edges.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert found.count.tolist() == [1, 0, 1, 2]
    assert found.mean_confidence[[0, 2, 3]].tolist() == [0.0, 0.5, 0.875]
    assert found.acceptance_rate[[0, 2, 3]].tolist() == [0.0, 1.0, 0.5]
    assert found.expected_calibration_error == (0.5 + 2 * 0.375) / 4


def test_no_drafts_have_no_calibration():
    found = reliability(np.zeros(0), np.zeros(0, dtype=bool))
    assert math.isnan(found.expected_calibration_error)
    assert math.isnan(found.auc)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40))
def test_the_area_is_the_share_of_pairs_ranked_right(drafts):
    confidence = np.array([score / 5 for score, _ in drafts])
    accepted = np.array([hit for _, hit in drafts])
    pairs = [(a > b) + (a == b) / 2 for a in confidence[accepted] for b in confidence[~accepted]]
    found = area_under_curve(confidence, accepted)
    assert found == pytest.approx(np.mean(pairs)) if pairs else math.isnan(found)
