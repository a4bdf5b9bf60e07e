"""Rewards: a gain over an exposure, from tested positions only."""

import pytest

from specsim.policies.rewards import accepted_and_rejected, accepted_fraction, reward_scale, throughput


def test_case_28_the_bonus_token_is_no_accepted_draft(outcome):
    # 1 of 3 accepted: one passed, one failed, the third was never tested. Not (1 + 1) / (3 + 1).
    assert accepted_fraction(outcome([3], [1])) == (1.0, 2.0)


def test_case_29_the_denominator_is_each_steps_own(outcome):
    steps = [outcome([3], [2])] * 10 + [outcome([1], [1])] * 10
    gain, exposure = (sum(column) for column in zip(*map(accepted_fraction, steps), strict=True))
    assert (gain, exposure, gain / exposure) == (30, 40, 0.75)


def test_case_30_pruned_drafts_are_not_failures(outcome):
    # 20 requests with 5 drafts each, 3 of them verified; 15 requests reject their third: 45 of 60 tested, not of 100.
    brought = outcome([3] * 20, [2] * 15 + [3] * 5)
    gain, exposure = accepted_fraction(brought)
    assert (gain, exposure) == (45.0, 60.0)


def test_a_request_that_ended_inside_its_block_saw_no_rejection(outcome):
    # Three verified, two accepted, and the second was the last token of the output.
    assert accepted_and_rejected(outcome([3], [2], num_emitted=[2])) == (2, 0)
    assert accepted_and_rejected(outcome([3], [2], num_emitted=[3])) == (2, 1)


def test_nothing_verified_is_nothing_tested(outcome):
    assert accepted_fraction(outcome([0, 0], [0, 0])) == (0.0, 0.0)


def test_throughput_counts_every_emitted_token_and_every_second(outcome):
    assert throughput(outcome([4, 4], [3, 0], seconds=0.05)) == (5.0, 0.05)


def test_a_step_of_many_requests_weighs_as_many_tests(outcome):
    gain, exposure = accepted_fraction(outcome([1] * 64, [1] * 32 + [0] * 32))
    assert (gain, exposure) == pytest.approx((32, 64))


def test_a_scale_is_the_users_or_the_best_mean_or_one():
    assert reward_scale("throughput", [150.0, 170.0], None) == 170.0
    assert reward_scale("throughput", [150.0, 170.0], 200.0) == 200.0
    assert reward_scale("accepted_fraction", [0.2, 0.4], None) == 1.0
    assert reward_scale("throughput", [0.0, 0.0], None) == 1.0
