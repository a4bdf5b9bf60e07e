"""The worth of one step: a ratio of totals, linearised."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.policies.arms.step_reward import StepReward

STEPS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).filter(sum), min_size=1, max_size=30)


@given(STEPS)
def test_an_accepted_fraction_stays_between_zero_and_one(steps):
    reward = StepReward()
    for accepted, rejected in steps:
        reward.add(accepted, accepted + rejected)
        assert -1e-12 <= reward.worth(accepted, accepted + rejected) <= 1 + 1e-12


def test_with_one_test_a_step_it_is_the_outcome_itself():
    reward = StepReward()
    for passed in (1, 0, 0, 1):
        reward.add(passed, 1)
        assert reward.worth(passed, 1) == passed


def test_on_average_a_step_is_worth_more_than_the_total_ratio_exactly_when_its_arm_is():
    # A shallow arm, one test of chance .70, and a deep one, tested until rejection at chance .72 a test.
    rng = np.random.default_rng(0)
    shallow = [(int(rng.random() < 0.70), 1) for _ in range(20_000)]
    deep = [(min(int(rng.geometric(0.28)) - 1, 15),) for _ in range(20_000)]
    deep = [(accepted, accepted + (accepted < 15)) for (accepted,) in deep]
    reward = StepReward()
    for step in (*shallow, *deep):
        reward.add(*step)
    worth = [np.mean([reward.worth(*step) for step in steps]) for steps in (shallow, deep)]
    plain = [np.mean([accepted / tested for accepted, tested in steps]) for steps in (shallow, deep)]
    assert plain[1] < 0.6 < plain[0]  # a mean of ratios prefers the worse arm
    assert worth[1] > reward.gain / reward.exposure > worth[0]


def test_it_is_in_the_unit_of_the_reward():
    reward = StepReward()
    reward.add(3.0, 0.02)
    reward.add(5.0, 0.02)
    assert reward.worth(5.0, 0.02) == pytest.approx(250.0)


def test_a_step_counts_as_much_as_the_largest_step_so_far_allows():
    reward = StepReward()
    reward.add(3.0, 8.0)
    reward.add(1.0, 2.0)
    # rho = .4; the second step brought .2 more than rho would have, a fortieth of the largest step's eight tests.
    assert reward.worth(1.0, 2.0) == pytest.approx(0.4 + 0.2 / 8)
