"""Thompson sampling on accept tests."""

import numpy as np

from specsim.policies.arms.thompson_beta import ThompsonBeta


def test_successes_are_accepted_drafts_and_failures_are_requests_with_a_rejection(outcome):
    policy = ThompsonBeta(num_arms=2)
    policy.update(1, outcome([4, 4, 4, 0], [4, 1, 0, 0]))
    assert policy.state_dict() == {"accepted": [0, 5], "rejected": [0, 2]}


def test_draws_come_from_the_posterior(context, outcome):
    # One arm with 3 accepted and 1 rejected beside a uniform prior against a certain one that is never the larger:
    # the draws themselves are Beta(4, 2), which the generator given must reproduce.
    policy = ThompsonBeta(num_arms=2)
    policy.accepted, policy.rejected = [3, 40], [1, 20]
    for seed in range(200):
        expected = np.random.default_rng(seed)
        draws = [expected.beta(4.0, 2.0), expected.beta(41.0, 21.0)]
        assert policy.pull(context, np.random.default_rng(seed)) == int(np.argmax(draws))


def test_it_settles_on_the_arm_that_is_accepted_most(context, outcome):
    policy, rng, pulled = ThompsonBeta(num_arms=3), np.random.default_rng(5), []
    for _ in range(2000):
        arm = policy.pull(context, rng)
        policy.update(arm, outcome([1], [int(rng.random() < (0.3, 0.7, 0.5)[arm])]))
        pulled.append(arm)
    assert pulled[1000:].count(1) > 950


def test_pruning_the_better_arm_does_not_make_it_look_worse(context, outcome):
    # The good arm is verified one draft deep, the bad one four: of drafted positions it has fewer accepted.
    policy, rng, pulled = ThompsonBeta(num_arms=2), np.random.default_rng(6), []
    for _ in range(500):
        arm = policy.pull(context, rng)
        verify, rate = ((1, 0.9), (4, 0.6))[arm]
        tests = rng.random(verify) < rate
        accepted = verify if tests.all() else int(np.argmin(tests))
        policy.update(arm, outcome([verify], [accepted], depth=4))
        pulled.append(arm)
    assert pulled[250:].count(0) > 240
