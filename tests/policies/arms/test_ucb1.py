"""UCB1: each arm once, then mean plus bonus."""

import math

import numpy as np
import pytest

from specsim.policies.arms.ucb1 import UCB1, exploration_bonus


def test_case_35_the_bonus_is_the_textbooks():
    assert exploration_bonus(100, 4) == pytest.approx(1.5174, abs=5e-5)
    assert exploration_bonus(100, 4, c=2.0) == 2 * exploration_bonus(100, 4)


def test_case_37_three_pulls_try_three_arms(context, outcome):
    policy = UCB1(num_arms=3)
    pulled = []
    for accepted in (1, 0, 1):
        pulled.append(policy.pull(context, context.rng))
        policy.update(pulled[-1], outcome([1], [accepted]))
    assert pulled == [0, 1, 2]


def test_the_index_is_mean_plus_bonus_over_all_steps_so_far(context, outcome):
    policy = UCB1(num_arms=2)
    policy.update(0, outcome([1] * 10, [1] * 6 + [0] * 4))
    for _ in range(9):
        policy.update(1, outcome([1] * 10, [1] * 9 + [0]))
    # t = 10: .6 + sqrt(2 ln 10 / 1) = 2.746 against .9 + sqrt(2 ln 10 / 9) = 1.615
    assert policy.pull(context, context.rng) == 0
    greedy = UCB1(num_arms=2, c=0.0)
    greedy.load_state_dict(policy.state_dict())
    assert greedy.pull(context, context.rng) == 1
    # between them: .6 + c sqrt(2 ln 10) = .9 + c sqrt(2 ln 10 / 9) at c = .3 / (sqrt(2 ln 10) * 2 / 3)
    turning = 0.3 / (math.sqrt(2 * math.log(10)) * 2 / 3)
    for c, arm in ((turning * 0.999, 1), (turning * 1.001, 0)):
        weighed = UCB1(num_arms=2, c=c)
        weighed.load_state_dict(policy.state_dict())
        assert weighed.pull(context, context.rng) == arm


def brought(policy, outcome):
    """Arm 0: 18 of 20 accepted at 30 ms a step. Arm 1: 12 of 20 at 20 ms."""
    for accepted in (4, 4, 4, 4, 2):
        policy.update(0, outcome([4], [accepted], seconds=0.03))
    for accepted in (4, 2, 2, 2, 2):
        policy.update(1, outcome([4], [accepted], seconds=0.02))
    return policy


def test_case_38_throughput_and_acceptance_disagree_on_the_better_drafter(context, outcome):
    by_tokens = brought(UCB1(num_arms=2, reward="throughput", c=0.0), outcome)
    assert by_tokens.totals.means() == pytest.approx([23 / 0.15, 17 / 0.10])  # 153 and 170 tokens a second
    assert by_tokens.pull(context, context.rng) == 1
    by_acceptance = brought(UCB1(num_arms=2, reward="accepted_fraction", c=0.0), outcome)
    assert by_acceptance.pull(context, context.rng) == 0


def test_a_mean_is_a_ratio_of_totals(outcome):
    policy = UCB1(num_arms=1)
    policy.update(0, outcome([1], [0]))
    policy.update(0, outcome([1] * 9, [1] * 9))
    assert policy.totals.means() == [0.9]  # the mean of the ratios would be .5


def test_throughput_is_scaled_by_the_best_arm_so_that_its_unit_does_not_matter(context, outcome):
    choices = []
    for unit in (1e-3, 1.0, 1e3):
        policy, pulled = UCB1(num_arms=2, reward="throughput"), []
        rng = np.random.default_rng(3)
        for _ in range(200):
            arm = policy.pull(context, rng)
            policy.update(arm, outcome([4], [rng.integers(0, 5)], seconds=unit * (1 + arm)))
            pulled.append(arm)
        choices.append(pulled)
    assert choices[0] == choices[1] == choices[2]
    assert 0 < sum(choices[0]) < 100  # the slow arm is tried, and less often than the fast one


def test_a_given_scale_replaces_the_running_one(context, outcome):
    small, large = (brought(UCB1(num_arms=2, reward="throughput", scale=scale), outcome) for scale in (1.0, 1e9))
    small.update(1, outcome([4], [2], seconds=0.02))
    large.update(1, outcome([4], [2], seconds=0.02))
    assert small.pull(context, context.rng) == 1  # differences of tokens a second drown the bonus
    assert large.pull(context, context.rng) == 0  # the bonus drowns them: the arm pulled less


def test_an_arm_that_was_never_tested_does_not_stop_the_others(context, outcome):
    policy, pulled = UCB1(num_arms=2), []
    for _ in range(50):
        arm = policy.pull(context, context.rng)
        policy.update(arm, outcome([0], [0]) if arm == 0 else outcome([4], [3]))
        pulled.append(arm)
    assert 1 < pulled.count(0) < pulled.count(1)


def test_steps_that_tested_nothing_do_not_make_an_arm_look_certain_once_it_is_tested(context, outcome):
    policy = UCB1(num_arms=2)
    for _ in range(10):
        policy.update(1, outcome([4], [3]))
    for _ in range(30):
        policy.update(0, outcome([0], [0]))
    # 0 + sqrt(2 ln 40 / 30) = .50 against .75 + sqrt(2 ln 40 / 10) = 1.61: it proposes nothing, and is left
    assert policy.pull(context, context.rng) == 1
    policy.update(0, outcome([4], [2]))
    # 2/3 + sqrt(2 ln 11 / 1) = 2.86 against .75 + sqrt(2 ln 11 / 10) = 1.44: one test says little
    assert policy.pull(context, context.rng) == 0


def test_by_throughput_a_step_that_tested_nothing_is_an_observation(outcome):
    policy = UCB1(num_arms=1, reward="throughput")
    for verified in (0, 0, 4):
        policy.update(0, outcome([verified], [verified], seconds=0.5))
    assert policy.totals.pulls == [3]
    assert policy.totals.means() == pytest.approx([7 / 1.5])
