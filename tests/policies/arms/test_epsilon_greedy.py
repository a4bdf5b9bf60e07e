"""Epsilon-greedy: the best so far, and any arm now and then."""

import numpy as np
import pytest

from specsim.policies.arms.epsilon_greedy import EpsilonGreedy


class Draws:
    """A generator that gives these uniforms."""

    def __init__(self, *values):
        self.values = list(values)

    def random(self):
        return self.values.pop(0)


def taught(outcome, **options):
    """Four arms of which the third is best."""
    policy = EpsilonGreedy(num_arms=4, **options)
    for arm, accepted in enumerate((1, 2, 4, 3)):
        policy.update(arm, outcome([4], [accepted]))
    return policy


def test_one_draw_says_whether_to_explore_and_what(context, outcome):
    policy = taught(outcome, epsilon=0.2)
    draws = (0.0, 0.049, 0.051, 0.101, 0.199, 0.2, 0.9)
    assert [policy.pull(context, Draws(draw)) for draw in draws] == [0, 0, 1, 2, 3, 2, 2]


def test_it_explores_as_often_as_it_says_and_every_arm_alike(context, outcome):
    policy, rng = taught(outcome, epsilon=0.4), np.random.default_rng(5)
    pulls = np.bincount([policy.pull(context, rng) for _ in range(4000)], minlength=4) / 4000
    assert pulls == pytest.approx([0.1, 0.1, 0.7, 0.1], abs=0.02)


def test_without_exploration_it_needs_no_chance(context, outcome):
    policy = taught(outcome, epsilon=0.0)
    assert {policy.pull(context, Draws(0.0)), policy.pull(context, Draws(0.999))} == {2}
