"""Thompson sampling on throughput."""

import math

import numpy as np

from specsim.policies.arms.thompson_gaussian import ThompsonGaussian


def test_each_arm_is_pulled_once_first(context, outcome):
    policy, pulled = ThompsonGaussian(num_arms=3), []
    for _ in range(3):
        pulled.append(policy.pull(context, context.rng))
        policy.update(pulled[-1], outcome([4], [2]))
    assert pulled == [0, 1, 2]


def test_draws_are_normal_around_each_mean_with_a_spread_that_shrinks_with_the_steps(context, outcome):
    policy = ThompsonGaussian(num_arms=2, reward="accepted_fraction", sigma=0.3)
    for accepted in (1, 0, 1, 1):
        policy.update(0, outcome([1], [accepted]))
    policy.update(1, outcome([1, 1], [1, 0]))
    for seed in range(200):
        expected = np.random.default_rng(seed)
        draws = [
            0.75 + 0.3 / math.sqrt(4) * expected.standard_normal(),
            0.5 + 0.3 / math.sqrt(1) * expected.standard_normal(),
        ]
        assert policy.pull(context, np.random.default_rng(seed)) == int(np.argmax(draws))


def test_case_38_it_settles_on_the_drafter_with_more_tokens_a_second(context, outcome):
    policy, rng, pulled = ThompsonGaussian(num_arms=2), np.random.default_rng(9), []
    for _ in range(4000):
        arm = policy.pull(context, rng)
        accepted = rng.choice([4, 4, 4, 4, 2] if arm == 0 else [4, 2, 2, 2, 2])
        policy.update(arm, outcome([4], [accepted], seconds=(0.03, 0.02)[arm]))
        pulled.append(arm)
    assert pulled[2000:].count(1) > 1800


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


def test_an_arm_that_failed_at_first_is_tried_again(context, outcome):
    policy, rng, pulled = ThompsonGaussian(num_arms=2, reward="accepted_fraction"), np.random.default_rng(3), []
    policy.update(0, outcome([1], [0]))
    policy.update(1, outcome([4], [2]))
    for _ in range(300):
        arm = policy.pull(context, rng)
        policy.update(arm, outcome([1], [int(rng.random() < (0.9, 0.4)[arm])]))
        pulled.append(arm)
    assert pulled[200:].count(0) > 90
