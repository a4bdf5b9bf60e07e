"""KL-UCB: the largest mean that the pulls do not rule out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.errors import InputError
from specsim.policies.arms.kl_ucb import KLUCB, upper_bound
from specsim.policies.build import build_arms
from specsim.policies.config import PolicyConfig


def kl(p, q):
    """Bernoulli relative entropy with 0 ln 0 = 0."""
    head = p * math.log(p / q) if p > 0 else 0.0
    return head + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0)


@given(mean=st.floats(0, 1), pulls=st.integers(1, 10**6), steps=st.integers(2, 10**7))
def test_the_bound_is_where_the_information_is_spent(mean, pulls, steps):
    information = math.log(steps)
    q = upper_bound(mean, pulls, information)
    assert mean <= q <= 1.0
    if 0.0 < mean < q < 1.0:
        beyond = q + 1e-9 + 1e-6 * (1 - q)
        assert pulls * kl(mean, q - 1e-6 * (q - mean)) <= information * (1 + 1e-6)
        assert beyond >= 1.0 or pulls * kl(mean, beyond) >= information * (1 - 1e-6)


def test_the_bound_of_a_mean_of_zero_is_the_exact_one():
    assert upper_bound(0.0, 10, math.log(100)) == pytest.approx(1 - 100 ** (-1 / 10))


def test_a_worked_bound():
    # kl(.5, q) = ln(100) / 50 at q = .5 + sqrt(1 - exp(-2 ln(100) / 50)) / 2, since kl(.5, q) = -ln(4 q (1 - q)) / 2
    assert upper_bound(0.5, 50, math.log(100)) == pytest.approx(0.5 + math.sqrt(1 - 100 ** (-2 / 50)) / 2)


@given(mean=st.floats(0, 1), pulls=st.integers(1, 1000), information=st.floats(0.01, 20))
def test_it_never_hopes_for_more_than_ucb1_does(mean, pulls, information):
    assert upper_bound(mean, pulls, information) <= mean + math.sqrt(information / (2 * pulls)) + 1e-12


def test_the_arm_with_the_largest_bound_is_pulled(context, outcome):
    policy = KLUCB(num_arms=2)
    policy.update(0, outcome([1] * 10, [1] * 6 + [0] * 4))
    for _ in range(9):
        policy.update(1, outcome([1] * 10, [1] * 9 + [0]))
    bounds = [upper_bound(0.6, 1, math.log(10)), upper_bound(0.9, 9, math.log(10))]
    assert policy.pull(context, context.rng) == bounds.index(max(bounds))
    for _ in range(40):
        policy.update(0, outcome([1] * 10, [1] * 6 + [0] * 4))
    assert policy.pull(context, context.rng) == 1


def test_c_widens_the_bound(context, outcome):
    choices = {}
    for c in (0.0, 1000.0):
        policy = KLUCB(num_arms=2, c=c)
        for _ in range(50):
            policy.update(1, outcome([1] * 10, [1] * 9 + [0]))
        policy.update(0, outcome([1] * 10, [0] * 10))
        policy.update(0, outcome([1] * 10, [0] * 10))
        choices[c] = policy.pull(context, context.rng)
    # Bounds 1 - 52^(-1/2) = .86 and .96 without; both 1 with, where the first of equals is pulled.
    assert choices == {0.0: 1, 1000.0: 0}


def test_a_reward_without_a_unit_needs_a_scale():
    with pytest.raises(InputError, match="reward throughput needs scale"):
        build_arms(PolicyConfig(name="kl_ucb", options={"reward": "throughput"}), 2)
    assert build_arms(PolicyConfig(name="kl_ucb", options={"reward": "throughput", "scale": 500}), 2).scale == 500
