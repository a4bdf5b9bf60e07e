"""EXP3.S: every arm keeps a chance, and rare pulls count as much."""

import math

import numpy as np
import pytest

from specsim.policies.arms.exp3s import EXP3S


def test_a_worked_update(outcome):
    policy = EXP3S(num_arms=2, gamma=0.2, alpha=0.01)
    policy.update(1, outcome([1], [1]))
    # p = 1/2: the pulled weight grows by exp(.2 * 1 / (1/2 * 2)); then each gets e * .01 / 2 of the whole.
    raised = [0.5 + math.e * 0.005, 0.5 * math.exp(0.2) + math.e * 0.005]
    assert policy.weights == pytest.approx([weight / sum(raised) for weight in raised])
    assert policy.chances() == pytest.approx([0.8 * weight + 0.1 for weight in policy.weights])


def test_what_was_rejected_raises_nothing(outcome):
    policy = EXP3S(num_arms=2, gamma=0.2, alpha=0.0)
    policy.update(1, outcome([1], [0]))
    assert policy.weights == [0.5, 0.5]


def test_a_step_without_a_test_teaches_nothing(outcome):
    policy = EXP3S(num_arms=2)
    before = policy.state_dict()
    policy.update(0, outcome([0], [0]))
    assert policy.state_dict() == before


def test_the_chances_are_a_law_in_which_no_arm_dies(context, outcome):
    policy, rng = EXP3S(num_arms=3, gamma=0.3, alpha=0.0), np.random.default_rng(1)
    for _ in range(2000):
        arm = policy.pull(context, rng)
        policy.update(arm, outcome([1], [arm == 1]))
        assert sum(policy.chances()) == pytest.approx(1.0)
        assert min(policy.chances()) >= 0.1 - 1e-12
    assert policy.chances()[1] > 0.79


def test_arms_are_drawn_by_their_chances(context):
    policy = EXP3S(num_arms=3, gamma=0.3)
    policy.load_state_dict(policy.state_dict() | {"weights": [0.7, 0.3, 0.0]})
    rng = np.random.default_rng(6)
    drawn = np.bincount([policy.pull(context, rng) for _ in range(6000)], minlength=3) / 6000
    assert drawn == pytest.approx([0.59, 0.31, 0.1], abs=0.02)


def test_a_throughput_is_scaled_by_the_best_step_so_that_its_unit_does_not_matter(outcome):
    weights = []
    for unit in (2.0**-8, 1.0, 2.0**8):
        policy = EXP3S(num_arms=2, reward="throughput", gamma=0.2)
        for accepted, arm in ((3, 0), (1, 1), (4, 0), (0, 1)):
            policy.update(arm, outcome([4], [accepted], seconds=unit))
        weights.append(policy.weights)
    assert weights[0] == weights[1] == weights[2]
    assert weights[0][0] > weights[0][1]
