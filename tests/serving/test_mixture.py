"""What several drafters of one step share, and what drafting with each in turn takes."""

import numpy as np
import pytest

from specsim.core import Order
from specsim.cost.examples import linear_table
from specsim.serving.mixture import catching_up, common, deepest, draft_seconds, shares
from tests.sim.hand_trace import drafter

DRAFTERS = (drafter("deep", 4), drafter("short", 2), drafter("other", 3))
COST = linear_table(0.008, 0.0001, drafters={"deep": 0.004, "short": 0.001, "other": 0.002}, max_depth=4)


def test_each_drafter_has_its_own_requests_and_goes_no_deeper_than_it_can():
    parts = shares(Order(2, 3, np.array([2, 1, 1, 2, 0])), DRAFTERS)
    assert [(part.arm, part.own.tolist(), part.depth) for part in parts] == [
        (0, [4], 3), (1, [1, 2], 2), (2, [0, 3], 3),
    ]  # fmt: skip


def test_only_drafters_that_take_part_are_asked_what_they_share():
    order = Order(1, 3, np.array([1, 2, 1]))
    parts = shares(order, DRAFTERS)
    assert deepest(parts, DRAFTERS).name == "other"
    assert common(tuple(DRAFTERS[part.arm] for part in parts)).name == "short+other"
    assert draft_seconds(parts, DRAFTERS, order, 64.0, COST) == pytest.approx(0.001)


def test_missed_tokens_are_paid_for_by_drafter():
    missed = [7, 0, 3]
    alone = [COST.switch_seconds(spec, tokens) for spec, tokens in zip(DRAFTERS, missed, strict=True)]
    assert catching_up(missed, DRAFTERS, COST) == alone[0] + alone[2]
    assert catching_up([0, 0, 0], DRAFTERS, COST) == 0
    assert alone[0] > 0
