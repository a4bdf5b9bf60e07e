"""Discounted Gaussian Thompson: any reward, and a belief that widens."""

import math

import numpy as np
import pytest

from specsim.policies.arms.discounted_thompson_gaussian import DiscountedThompsonGaussian


class Normals:
    """A generator whose normals are these."""

    def __init__(self, *values):
        self.values = list(values)

    def standard_normal(self):
        return self.values.pop(0)


def taught(weight, gain, exposure, **options):
    policy = DiscountedThompsonGaussian(num_arms=2, **options)
    policy.totals.load_state_dict({"weight": weight, "gain": gain, "exposure": exposure})
    return policy


def test_the_draw_is_the_mean_and_sigma_over_the_root_of_the_faded_count(context):
    policy = taught([4.0, 1.0], [9.0, 2.0], [10.0, 10.0], reward="accepted_fraction", sigma=0.4)
    # .9 + .2 z0 against .2 + .4 z1
    turning = (0.7 + 0.2 * 0.5) / 0.4
    assert policy.pull(context, Normals(0.5, turning - 1e-9)) == 0
    assert policy.pull(context, Normals(0.5, turning + 1e-9)) == 1


def test_the_spread_widens_while_an_arm_is_idle(context, outcome):
    policy = taught([100.0, 1.0], [900.0, 2.0], [1000.0, 10.0], reward="accepted_fraction", discount=0.9)
    for _ in range(20):
        policy.update(1, outcome([4], [2]))
    assert policy.totals.weight[0] == pytest.approx(100 * 0.9**20)
    spread = 0.5 / math.sqrt(100 * 0.9**20)
    mean = policy.totals.means()[1]
    assert policy.pull(context, Normals((mean - 0.9) / spread + 1e-6, 0.0)) == 0
    assert policy.pull(context, Normals((mean - 0.9) / spread - 1e-6, 0.0)) == 1


def test_an_arm_that_brought_nothing_comes_back(context, outcome):
    policy, pulled = DiscountedThompsonGaussian(num_arms=2, reward="accepted_fraction", discount=0.9), []
    rng = np.random.default_rng(8)
    for _ in range(300):
        pulled.append(policy.pull(context, rng))
        policy.update(pulled[-1], outcome([1], [pulled[-1]]))
    assert 5 < pulled[100:].count(0) < 100


def test_the_unit_of_time_does_not_matter(context, outcome):
    choices = []
    for unit in (2.0**-10, 1.0, 2.0**10):
        policy, rng, pulled = DiscountedThompsonGaussian(num_arms=2), np.random.default_rng(4), []
        for _ in range(100):
            pulled.append(policy.pull(context, rng))
            policy.update(pulled[-1], outcome([4], [rng.integers(0, 5)], seconds=unit * (1 + pulled[-1])))
        choices.append(pulled)
    assert choices[0] == choices[1] == choices[2]
