"""Faults that other systems have had, as far as they concern what a step costs."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.cost.examples import flat_table, linear_table, staircase_table
from tests.cost.tables import drafter, table, verify

FREE = {"block": 0.0}


def test_case_14_catching_up_a_drafter_is_charged_by_the_tokens_it_missed():
    costs = linear_table(0.01, 0.001, drafters={"block": 0.008192})
    assert costs.switch_seconds(drafter(kind="model"), 2) == pytest.approx(2e-6)
    assert costs.switch_seconds(drafter(kind="model"), 0) == 0.0


def test_case_19_depth_0_costs_a_plain_step_whatever_the_drafter():
    costs = linear_table(0.01, 0.001, drafters={"block": 0.005})
    plain = costs.step_cost(None, 8, 0, 100.0).seconds
    assert plain.tolist() == [pytest.approx(0.018)]
    assert costs.step_cost(drafter(), 8, 0, 100.0).seconds.tolist() == plain.tolist()
    assert costs.phases(drafter(), 8, 0, 0, 100.0).draft == 0.0


def test_case_20_verifying_five_tokens_of_64_requests_costs_26_ms():
    heights = {64 * n: 0.010 + 0.004 * (n - 1) for n in range(1, 6)}
    costs = staircase_table(heights, batches=(64, 64), drafters=FREE, max_depth=4)
    seconds = costs.step_cost(drafter(), 64, 4, 0.0).seconds
    assert seconds[-1] == pytest.approx(0.026)
    emitted = 64 * (1 + 0.5 + 0.25 + 0.125 + 0.0625)
    assert emitted / seconds[-1] / 1e3 == pytest.approx(4.77, abs=0.005)
    assert 64 / costs.step_cost(None, 64, 0, 0.0).seconds[0] / 1e3 == pytest.approx(6.4)


def test_case_21_above_the_capture_limit_the_eager_curve_is_used_and_said():
    eager = {(32, 513): 0.040, (32, 1024): 0.071}
    cells = verify({(32, 32): 0.010, (32, 512): 0.020} | eager)
    costs = table(cells, capture_sizes=[32, 512])
    assert costs.phases(None, 32, 0, 0, 0.0).verify == 0.010
    assert costs.notes == ["the cost table is a made-up example"]
    seconds = table(cells, [32, 512]).step_cost(drafter(target_fraction=0.0), 32, 16, 0.0).seconds
    assert len(seconds) == 32 * 16 + 1
    assert seconds[512 - 32] == 0.020  # the last captured size
    assert seconds[544 - 32] == pytest.approx(0.040 + (544 - 513) / (1024 - 513) * 0.031)
    costs.step_cost(drafter(target_fraction=0.0), 32, 16, 0.0)
    assert "above the largest captured size (512 tokens) the eager curve is used" in costs.notes
    assert costs.tokens_paid(32, 544) == 544


def test_case_22_a_step_pays_for_the_capture_size_it_is_padded_to():
    heights = {16: 0.010, 32: 0.012, 40: 0.013, 64: 0.017}
    costs = staircase_table(heights, batches=(1, 4), drafters=FREE)
    assert costs.tokens_paid(3, 3 * 16) == 64
    assert costs.step_cost(drafter(), 3, 15, 0.0).seconds[45] == 0.017
    assert [costs.tokens_paid(1, tokens) for tokens in (1, 16, 17, 40, 41)] == [16, 16, 32, 40, 64]


def test_case_23_one_draft_more_than_the_anchors_pays_for_the_next_capture_size():
    costs = staircase_table({64: 0.010, 128: 0.014}, batches=(64, 64), drafters=FREE, max_depth=1)
    seconds = costs.step_cost(drafter(), 64, 1, 0.0).seconds
    assert seconds.tolist() == [0.010] + [0.014] * 64
    # (i) 64 drafts that survive with .1, (ii) 16 with .9 and 48 with .05: no draft is worth the next size.
    for survival in (np.full(64, 0.1), np.r_[np.full(16, 0.9), np.full(48, 0.05)]):
        emitted = 64 + np.r_[0.0, survival.cumsum()]
        assert int((emitted / seconds).argmax()) == 0
    assert (64 + 63 * 0.1) / seconds[63] / 1e3 == pytest.approx(5.02, abs=0.005)
    assert (64 + 16 * 0.9) / seconds[16] / 1e3 == pytest.approx(5.60, abs=0.005)


def test_case_24_the_staircase_has_a_step_that_must_be_climbed_to_reach_the_best_budget():
    costs = staircase_table({4: 1.0, 8: 1.3, 16: 1.35}, batches=(4, 4), drafters=FREE, max_depth=3)
    seconds = costs.step_cost(drafter(), 4, 3, 0.0).seconds
    assert seconds.tolist() == [1.0] + [1.3] * 4 + [1.35] * 8
    rate = (4 + 0.5 * np.arange(13)) / seconds
    assert int(rate.argmax()) == 12
    assert rate[12] == pytest.approx(7.41, abs=0.005)
    assert rate[1] < rate[0] == 4.0  # where a first-fall stop would end


def test_case_25_a_flat_table_is_said_to_be_flat():
    warning = "the cost table is flat: verifying more costs nothing, so every draft is worth verifying"
    assert warning in flat_table(0.01).notes
    assert warning in table(verify({(1, 1): 1.0, (1, 16): 1.0099})).notes
    assert warning not in table(verify({(1, 1): 1.0, (1, 16): 1.0101})).notes
    assert warning not in table(verify({(1, 1): 1.0, (1, 16): 1.0, (8, 8): 1.0, (8, 128): 2.0})).notes
    assert warning not in table(verify({(1, 1): 1.0})).notes  # one count a batch says nothing of the slope
