"""Discounted Beta-Thompson: counts fade, the prior stays."""

import numpy as np
import pytest

from specsim.policies.arms.discounted_thompson_beta import DiscountedThompsonBeta
from specsim.policies.arms.thompson_beta import ThompsonBeta


def test_case_36_the_counts_of_every_arm_fade(outcome):
    policy = DiscountedThompsonBeta(num_arms=2, discount=0.9)
    policy.load_state_dict({"accepted": [10.0, 0.0], "rejected": [100.0, 0.0]})
    for _ in range(5):
        policy.update(1, outcome([4], [3]))
    assert policy.accepted[0] == pytest.approx(5.9049)
    assert policy.rejected[0] == pytest.approx(59.049)
    assert policy.accepted[1] == pytest.approx(3 * (1 - 0.9**5) / 0.1)


def test_an_arm_forgotten_for_long_is_drawn_from_the_prior(context, outcome):
    policy = DiscountedThompsonBeta(num_arms=2, discount=0.5)
    policy.load_state_dict({"accepted": [0.0, 0.0], "rejected": [1000.0, 0.0]})
    for _ in range(60):
        policy.update(1, outcome([2], [1]))
    # Arm 0 is uniform again; arm 1 believes Beta(3, 3) around a half: each is drawn largest about half the time.
    pulls = [policy.pull(context, np.random.default_rng(seed)) for seed in range(400)]
    assert 150 < sum(pulls) < 250


def test_without_discount_it_is_thompson_sampling(context, outcome):
    faded, plain = DiscountedThompsonBeta(num_arms=3, discount=1.0), ThompsonBeta(num_arms=3)
    one, other = np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(200):
        arm = faded.pull(context, one)
        assert arm == plain.pull(context, other)
        brought = outcome([4], [context.rng.integers(5)])
        faded.update(arm, brought)
        plain.update(arm, brought)
