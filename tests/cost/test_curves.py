from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.cost.curves import Curve, Edge, bracket, lerp
from specsim.errors import InputError
from tests.cost.tables import SECONDS

POINTS = st.dictionaries(st.integers(1, 1000), SECONDS, min_size=1, max_size=8)


@given(POINTS)
def test_a_curve_gives_every_measured_point_exactly(points):
    curve = Curve(points)
    assert curve.at(np.array(sorted(points), dtype=np.float64)).tolist() == [points[x] for x in sorted(points)]


@given(POINTS, st.floats(0, 1))
def test_a_curve_stays_between_the_points_around(points, where):
    curve = Curve(points)
    x = curve.low + where * (curve.high - curve.low)
    below = max(knot for knot in points if knot <= x)
    above = min(knot for knot in points if knot >= x)
    low, high = sorted((points[below], points[above]))
    assert low <= float(curve.at(np.float64(x))) <= high


def test_a_curve_holds_below_its_first_point_and_goes_on_straight_beyond_its_last():
    curve = Curve({10: 1.0, 20: 2.0})
    assert curve.at(np.array([5.0, 15.0, 30.0])).tolist() == [1.0, 1.5, 3.0]


def test_a_curve_does_not_fall_beyond_its_last_point():
    assert float(Curve({10: 2.0, 20: 1.0}).at(np.float64(30))) == 1.0


def test_a_curve_of_one_point_is_constant():
    assert Curve({10: 2.0}).at(np.array([1.0, 100.0])).tolist() == [2.0, 2.0]


def test_rounding_never_leaves_the_two_ends():
    weights = np.linspace(0, 1, 10001)
    assert set(lerp(0.1, 0.1, weights)) == {0.1}


def test_a_knot_is_its_own_bracket():
    assert bracket([1, 4, 8], 4) == (4, 4, 0.0)
    assert bracket([1, 4, 8], 5) == (4, 8, 0.25)
    assert bracket([1, 4, 8], 0) == (1, 1, 0.0)
    assert bracket([1, 4, 8], 10) == (4, 8, 1.5)
    assert bracket([4], 10) == (4, 4, 0.0)


def test_what_is_beyond_the_range_is_refused_in_one_line_with_the_remedy():
    with pytest.raises(
        InputError, match=r"^t: batch 9 is outside what was measured \(1 to 8\).*--extrapolate"
    ) as error:
        Edge("t").beyond("batch", 9, "1 to 8")
    assert "\n" not in str(error.value)


def test_extrapolation_is_noted_once():
    edge = Edge("t", extrapolate=True)
    edge.beyond("batch", 9, "1 to 8")
    edge.beyond("batch", 10, "1 to 8")
    assert list(edge.notes) == ["extrapolated beyond the measured batch"]
