"""The lower convex envelope of a cost curve."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.core import DrafterSpec
from specsim.cost.envelope import lower_envelope
from specsim.cost.examples import staircase_table

CURVES = st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=40).map(np.array)


def brute_force(seconds):
    """At each point, the lowest chord between a point at or before it and one at or after it."""
    count = len(seconds)
    lowest = seconds.copy()
    for at in range(count):
        for left in range(at + 1):
            for right in range(at, count):
                if left < right:
                    share = (at - left) / (right - left)
                    lowest[at] = min(lowest[at], seconds[left] * (1 - share) + seconds[right] * share)
    return lowest


@given(CURVES)
def test_it_is_the_lowest_chord_at_every_point(seconds):
    assert lower_envelope(seconds) == pytest.approx(brute_force(seconds), abs=1e-12)


@given(CURVES)
def test_it_never_exceeds_the_curve_and_meets_it_at_both_ends(seconds):
    envelope = lower_envelope(seconds)
    assert (envelope <= seconds).all()
    assert envelope[0] == seconds[0]
    assert envelope[-1] == seconds[-1]


def test_a_staircase_becomes_the_line_under_its_corners():
    stairs = np.array([1.0, 3.0, 3.0, 5.0, 5.0])
    assert lower_envelope(stairs).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_table_prices_every_step_with_its_envelope():
    table = staircase_table({4: 0.01, 8: 0.02, 16: 0.02}, (4,), drafters={"block": 0.0}, max_depth=3)
    spec = DrafterSpec("block", "block", "point_mass", "parallel", ("drawn_prob",), 3)
    cost = table.step_cost(spec, 4, 3, 10.0)
    assert cost.envelope.tolist() == pytest.approx(brute_force(cost.seconds).tolist())
    assert not cost.envelope.flags.writeable
