"""Sliding-window UCB: only the window counts."""

import math

import numpy as np
import pytest

from specsim.policies.arms.sliding_window_ucb import SlidingWindowUCB


def test_counts_in_the_bonus_are_the_windows_not_all_time(context, outcome):
    policy = SlidingWindowUCB(num_arms=2, window=10, c=1.0)
    for _ in range(500):  # long ago the first arm was pulled five hundred times
        policy.update(0, outcome([10], [7]))
    for _ in range(9):
        policy.update(1, outcome([10], [9]))
    assert policy.totals.pulls == [1, 9]
    # 7/8 + sqrt(2 ln 10 / 1) = 3.02 against 9/10 + sqrt(2 ln 10 / 9) = 1.62; all-time counts would say 1
    assert policy.pull(context, context.rng) == 0


def test_the_logarithm_stops_at_the_window(context, outcome):
    # Means 4/5 and 1, n = 1 and 9: the bonuses differ by 2/3 c sqrt(2 ln t), so the choice turns where that is .2.
    turning = 0.2 / (math.sqrt(2 * math.log(10)) * 2 / 3)
    choices = []
    for c in (turning * 0.99, turning * 1.01):
        policy = SlidingWindowUCB(num_arms=2, window=10, c=c)
        for _ in range(1000):
            policy.update(1, outcome([9], [9]))
        policy.update(0, outcome([9], [4]))
        choices.append(policy.pull(context, context.rng))
    assert choices == [1, 0]


def test_an_arm_that_left_the_window_is_pulled_at_once(context, outcome):
    policy = SlidingWindowUCB(num_arms=3, window=4)
    policy.update(0, outcome([4], [4]))
    policy.update(1, outcome([4], [4]))
    for _ in range(3):
        policy.update(2, outcome([4], [0]))
    assert policy.totals.pulls == [0, 1, 3]
    assert policy.totals.exposure[0] == 0.0
    assert policy.pull(context, context.rng) == 0


def test_the_sums_are_those_of_the_window(context, outcome):
    policy, rng, steps = SlidingWindowUCB(num_arms=3, window=25, reward="throughput"), np.random.default_rng(2), []
    for _ in range(400):
        arm, accepted, seconds = int(rng.integers(3)), int(rng.integers(5)), float(rng.uniform(0.01, 0.03))
        policy.update(arm, outcome([4], [accepted], seconds=seconds))
        steps.append((arm, accepted + 1, seconds))
    for arm in range(3):
        own = [step for step in steps[-25:] if step[0] == arm]
        assert policy.totals.pulls[arm] == len(own)
        assert policy.totals.gain[arm] == sum(tokens for _, tokens, _ in own)
        assert policy.totals.exposure[arm] == pytest.approx(sum(seconds for _, _, seconds in own))


def test_steps_that_tested_nothing_leave_the_window_as_they_counted_in_it(outcome):
    policy, rng, steps = SlidingWindowUCB(num_arms=3, window=12), np.random.default_rng(6), []
    for _ in range(600):
        arm, verified = int(rng.integers(3)), int(rng.integers(4) // 2 * 2)
        policy.update(arm, outcome([verified], [verified]))
        steps.append((arm, verified))
        for one in range(3):
            own = [verified for arm, verified in steps[-12:] if arm == one]
            since = next((lag for lag, verified in enumerate(reversed(own)) if verified), len(own))
            assert policy.totals.pulls[one] == sum(verified > 0 for verified in own) + since
            assert policy.totals.exposure[one] == sum(own)


def test_a_state_of_a_longer_window_is_refused(outcome):
    long, short = SlidingWindowUCB(num_arms=1, window=5), SlidingWindowUCB(num_arms=1, window=4)
    for _ in range(5):
        long.update(0, outcome([4], [2]))
    with pytest.raises(ValueError, match="window holds 4 steps, the state 5"):
        short.load_state_dict(long.state_dict())
