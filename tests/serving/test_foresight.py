"""When launching a step's beginning ahead pays."""

from __future__ import annotations

from fractions import Fraction

import pytest

from specsim.serving.foresight import MEMORY, UNKNOWN_GAIN, Surprises


def of_share(share: float) -> Surprises:
    surprises = Surprises()
    surprises.share = share
    return surprises


def test_before_anything_is_known_nothing_is_taken_to_be_a_surprise():
    assert Surprises().share == 0.0
    assert Surprises().allow(None)
    assert Surprises().allow(1e-9)


def test_the_share_moves_by_one_64th_of_the_way_to_what_came():
    surprises = Surprises()
    surprises.learn(True)
    assert surprises.share == 1 / 64
    surprises.learn(True)
    assert surprises.share == 1 / 64 + 63 / 64 / 64
    surprises.learn(False)
    assert surprises.share == pytest.approx((1 / 64 + 63 / 64 / 64) * 63 / 64)


def test_the_share_comes_near_to_what_always_comes_and_stays_in_0_to_1():
    surprises = Surprises()
    for _ in range(20 * MEMORY):
        surprises.learn(True)
    assert 0.999 < surprises.share <= 1.0
    for _ in range(20 * MEMORY):
        surprises.learn(False)
    assert 0.0 <= surprises.share < 0.001


def test_one_surprise_in_ten_is_a_share_of_a_tenth():
    surprises = Surprises()
    seen = []
    for step in range(1000):
        surprises.learn(step % 10 == 9)
        seen.append(surprises.share)
    assert sum(seen[-100:]) / 100 == pytest.approx(0.1, abs=0.005)


def test_the_latest_steps_count_more_than_the_older_ones():
    early, late = Surprises(), Surprises()
    for step in range(64):
        early.learn(step < 8)
        late.learn(step >= 56)
    assert early.share < late.share


@pytest.mark.parametrize("gain", [0.01, 0.1, 0.5, 1.0])
def test_launching_is_allowed_below_the_gain_and_not_at_it(gain):
    assert of_share(gain * 0.999).allow(gain)
    assert not of_share(gain).allow(gain)


def test_where_the_gain_is_not_known_it_is_taken_to_be_4_percent_of_a_pass():
    assert UNKNOWN_GAIN == 0.04
    assert of_share(0.0399).allow(None)
    assert not of_share(0.04).allow(None)


def test_what_gains_nothing_is_never_launched_though_nothing_surprises():
    assert not Surprises().allow(0.0)


def test_a_gain_of_nothing_is_not_a_gain_that_is_not_known():
    assert of_share(0.02).allow(None)
    assert not of_share(0.02).allow(0.0)


@pytest.mark.parametrize("gain", range(33))
def test_launching_is_allowed_exactly_while_it_makes_steps_shorter(gain):
    """Steps of a pass of 32, all counted out; a step that waits for the host first takes `gain` longer."""
    one_pass, steps = 32, 32
    for surprising in range(steps + 1):
        # A right launch saves the host's time. A wrong pass is waited for, all but that time; then comes the step.
        wrong = (one_pass - gain) + gain + one_pass
        launched = surprising * wrong + (steps - surprising) * one_pass
        waited = steps * (gain + one_pass)
        share = Fraction(surprising, steps)
        assert (launched < waited) == (share * (one_pass - gain) < (1 - share) * gain), "as the docstring has it"
        assert of_share(surprising / steps).allow(gain / one_pass) == (launched < waited)  # 32nds: floats are exact
