"""Thompson sampling on throughput."""

import math

import numpy as np
import pytest

from specsim.policies.arms.thompson_gaussian import ThompsonGaussian


def test_each_arm_is_pulled_once_first(context, outcome):
    policy, pulled = ThompsonGaussian(num_arms=3), []
    for _ in range(3):
        pulled.append(policy.pull(context, context.rng))
        policy.update(pulled[-1], outcome([4], [2]))
    assert pulled == [0, 1, 2]


def test_the_spread_of_one_step_is_the_assumed_deviation(outcome):
    policy = ThompsonGaussian(num_arms=1, sigma=0.25)
    policy.update(0, outcome([4], [2], seconds=0.02))
    assert policy._spread(0, policy.totals.means()[0]) == pytest.approx(0.25)


def test_the_spread_is_the_standard_error_of_a_ratio_of_totals(outcome):
    policy = ThompsonGaussian(num_arms=1, sigma=0.5)
    steps = [(4, 0.02), (1, 0.03), (5, 0.02), (2, 0.01)]  # tokens, seconds
    for tokens, seconds in steps:
        policy.update(0, outcome([4], [tokens - 1], seconds=seconds))
    ratio = 12 / 0.08
    residuals = [(tokens - ratio * seconds) / (ratio * 0.02) for tokens, seconds in steps]
    spread = math.sqrt(0.25 + sum(residual**2 for residual in residuals)) / 4
    assert policy.totals.means() == pytest.approx([ratio])
    assert policy._spread(0, ratio) == pytest.approx(spread)


def test_case_38_it_settles_on_the_drafter_with_more_tokens_a_second(context, outcome):
    policy, rng, pulled = ThompsonGaussian(num_arms=2), np.random.default_rng(9), []
    for _ in range(1000):
        arm = policy.pull(context, rng)
        accepted = rng.choice([4, 4, 4, 4, 2] if arm == 0 else [4, 2, 2, 2, 2])
        policy.update(arm, outcome([4], [accepted], seconds=(0.03, 0.02)[arm]))
        pulled.append(arm)
    assert pulled[500:].count(1) > 450


def test_the_unit_of_the_reward_does_not_matter(context, outcome):
    choices = []
    for unit in (2.0**-10, 1.0, 2.0**10):
        policy, rng, pulled = ThompsonGaussian(num_arms=2), np.random.default_rng(4), []
        for _ in range(100):
            arm = policy.pull(context, rng)
            policy.update(arm, outcome([4], [rng.integers(0, 5)], seconds=unit * (1 + arm)))
            pulled.append(arm)
        choices.append(pulled)
    assert choices[0] == choices[1] == choices[2]


def test_an_arm_that_brought_nothing_does_not_break_the_others(context, outcome):
    policy = ThompsonGaussian(num_arms=2, reward="accepted_fraction")
    policy.update(0, outcome([0], [0]))
    policy.update(1, outcome([4], [2]))
    assert policy.pull(context, context.rng) == 1
