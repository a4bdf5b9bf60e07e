"""The log histogram against numpy on the same values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.histogram import LARGEST, SMALLEST, LogHistogram

HALF_A_BIN = 0.0011


def filled(values: list[float], weights: list[float] | None = None) -> LogHistogram:
    histogram = LogHistogram()
    histogram.add(np.array(values), np.ones(len(values)) if weights is None else np.array(weights))
    return histogram


def test_an_empty_histogram_knows_nothing():
    histogram = LogHistogram()
    assert math.isnan(histogram.mean())
    assert math.isnan(histogram.variance())
    assert math.isnan(histogram.quantile(0.5))


def test_mean_and_variance_are_exact():
    histogram = filled([0.010, 0.020, 0.060], [1, 2, 1])
    assert histogram.mean() == pytest.approx(0.0275, rel=1e-15)
    assert histogram.variance() == pytest.approx((0.0175**2 + 2 * 0.0075**2 + 0.0325**2) / 4, rel=1e-12)


def test_a_weight_counts_a_value_that_many_times():
    histogram = filled([0.001, 0.100], [99, 1])
    assert histogram.quantile(0.99) == pytest.approx(0.001, rel=HALF_A_BIN)
    assert histogram.quantile(0.995) == pytest.approx(0.100, rel=HALF_A_BIN)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=60),
    fraction=st.floats(0, 1),
)
def test_a_quantile_is_within_a_tenth_of_a_percent_of_the_exact_one(values, fraction):
    exact = np.quantile(np.array(values), fraction, method="inverted_cdf")
    assert filled(values).quantile(fraction) == pytest.approx(exact, rel=HALF_A_BIN)


def test_fraction_zero_is_the_smallest_value_and_one_the_largest():
    histogram = filled([0.5, 2.0, 8.0])
    assert histogram.quantile(0.0) == pytest.approx(0.5, rel=HALF_A_BIN)
    assert histogram.quantile(1.0) == pytest.approx(8.0, rel=HALF_A_BIN)


def test_fraction_one_is_reached_whatever_the_order_of_the_float_sums():
    tenths = np.full(10, 0.1)
    assert np.cumsum(tenths)[-1] < tenths.sum()  # numpy adds the one in sequence, the other pairwise
    assert filled(list(np.arange(1.0, 11.0)), list(tenths)).quantile(1.0) == pytest.approx(10.0, rel=HALF_A_BIN)


def test_zero_and_huge_values_count_at_the_ends():
    histogram = filled([0.0, 1e9])
    assert histogram.quantile(0.0) == pytest.approx(SMALLEST)
    assert histogram.quantile(1.0) == pytest.approx(LARGEST, rel=HALF_A_BIN)


def test_many_small_additions_equal_one_large_one():
    values = np.random.default_rng(1).gamma(2.0, 0.01, 1000)
    piecewise = LogHistogram()
    for value in values:
        piecewise.add(np.array([value]), np.array([1]))
    at_once = filled(list(values))
    assert piecewise.quantile(0.9) == at_once.quantile(0.9)
    assert piecewise.mean() == pytest.approx(at_once.mean(), rel=1e-12)
    assert np.array_equal(piecewise.counts, at_once.counts)


def test_merging_equals_counting_everything_in_one():
    left, right = filled([0.01, 0.02]), filled([0.04, 0.09], [3, 1])
    left.merge(right)
    both = filled([0.01, 0.02, 0.04, 0.09], [1, 1, 3, 1])
    assert left.mean() == pytest.approx(both.mean(), rel=1e-15)
    assert left.variance() == pytest.approx(both.variance(), rel=1e-12)
    assert [left.quantile(f) for f in (0.1, 0.5, 0.9)] == [both.quantile(f) for f in (0.1, 0.5, 0.9)]


def test_merging_leaves_the_other_one_as_it_was():
    left, right = filled([0.01]), filled([0.04])
    left.merge(right)
    assert (right.count, right.mean()) == (1.0, pytest.approx(0.04))


def test_totals_spread_over_counts_are_their_shares():
    rng = np.random.default_rng(4)
    totals, counts = rng.random(1000), rng.integers(1, 6, 1000)
    spread, direct = LogHistogram(), LogHistogram()
    for part in np.split(np.arange(1000), 500):  # more parts than the buffer holds
        spread.add_spread(totals[part], counts[part])
        direct.add(totals[part] / counts[part], counts[part])
    for fraction in (0.0, 0.1, 0.5, 0.9, 1.0):
        assert spread.quantile(fraction) == direct.quantile(fraction)
    assert spread.count == direct.count
    assert spread.mean() == pytest.approx(direct.mean(), rel=1e-12)
    assert spread.variance() == pytest.approx(direct.variance(), rel=1e-9)


def test_what_waits_to_be_counted_never_grows():
    histogram = LogHistogram()
    for _ in range(5 * LogHistogram.BUFFER):
        histogram.add_spread(np.ones(3), np.ones(3, np.int64))
        histogram.add(np.ones(3), np.ones(3))
        waiting = [*histogram._totals, *histogram._counts, *histogram._values, *histogram._weights]
        assert sum(len(part) for part in waiting) <= 4 * 3 * LogHistogram.BUFFER
