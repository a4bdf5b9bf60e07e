"""Discounted UCB: means and counts fade together."""

import math

import pytest

from specsim.policies.arms.discounted_ucb import DiscountedUCB
from specsim.policies.arms.ucb1 import UCB1


def test_case_36_an_arm_that_is_not_pulled_loses_weight(outcome):
    policy = DiscountedUCB(num_arms=2, discount=0.9)
    policy.totals.load_state_dict({"weight": [10.0, 0.0], "gain": [5.0, 0.0], "exposure": [10.0, 0.0]})
    for _ in range(5):
        policy.update(1, outcome([4], [2]))
    assert policy.totals.weight[0] == pytest.approx(5.9049)


def test_the_index_is_of_faded_counts(context, outcome):
    policy = DiscountedUCB(num_arms=2, discount=0.5, c=1.0)
    policy.totals.load_state_dict({"weight": [2.0, 2.0], "gain": [18.0, 16.0], "exposure": [20.0, 20.0]})
    # .9 and .8 with equal weights; one more pull of arm 0 leaves 2 and 1: .9 + sqrt(2 ln 3 / 2), .8 + sqrt(2 ln 3)
    assert policy.pull(context, context.rng) == 0
    policy.update(0, outcome([10], [9]))
    assert policy.totals.weight == [2.0, 1.0]
    assert 0.9 + math.sqrt(math.log(3)) < 0.8 + math.sqrt(2 * math.log(3))
    assert policy.pull(context, context.rng) == 1


def test_without_discount_and_with_the_textbooks_constant_it_is_ucb1(context, outcome):
    faded, plain = DiscountedUCB(num_arms=3, discount=1.0, c=1.0), UCB1(num_arms=3)
    for _ in range(300):
        arm = faded.pull(context, context.rng)
        assert arm == plain.pull(context, context.rng)
        brought = outcome([1], [context.rng.random() < (0.3, 0.7, 0.5)[arm]])
        faded.update(arm, brought)
        plain.update(arm, brought)
