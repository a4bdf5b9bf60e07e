"""Sums that fade at every step, for every arm."""

import pytest

from specsim.policies.arms.discounted_totals import DiscountedTotals


def test_case_36_discounting_touches_every_arm():
    totals = DiscountedTotals(num_arms=2, discount=0.9)
    totals.load_state_dict({"weight": [10.0, 0.0], "gain": [5.0, 0.0], "exposure": [20.0, 0.0]})
    for _ in range(5):
        totals.add(1, 1.0, 2.0)
    assert totals.weight[0] == pytest.approx(5.9049)
    assert totals.weight[1] == pytest.approx(1 + 0.9 + 0.81 + 0.729 + 0.6561)
    assert totals.means() == pytest.approx([0.25, 0.5])  # fading alike, a ratio of totals stays what it was


def test_recent_steps_weigh_more():
    totals = DiscountedTotals(num_arms=1, discount=0.5)
    for gain in (0.0, 0.0, 1.0):
        totals.add(0, gain, 1.0)
    assert totals.means() == [1.0 / 1.75]


def test_the_weight_of_steps_that_tested_nothing_fades_and_is_struck_out_by_a_test():
    totals = DiscountedTotals(num_arms=2, discount=0.5)
    totals.add(0, 1.0, 1.0)
    totals.add(0, 0.0, 0.0)
    totals.add(1, 0.0, 0.0)
    totals.add(0, 0.0, 0.0)
    assert totals.weight == [0.125 + 0.25 + 1.0, 0.5]
    totals.add(0, 1.0, 1.0)
    assert totals.weight == [0.0625 + 1.0, 0.25]
    assert totals.untested == [0.0, 0.25]


def test_a_state_of_another_number_of_arms_is_refused():
    with pytest.raises(ValueError, match="discounted totals need"):
        DiscountedTotals(2, 0.9).load_state_dict({"weight": [1.0], "gain": [1.0], "exposure": [1.0]})
