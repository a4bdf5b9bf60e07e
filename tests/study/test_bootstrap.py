"""Paired bootstrap intervals against the normal theory and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.study.bootstrap import paired_interval


def test_one_seed_gives_no_width():
    assert paired_interval(np.array([1.25])) == (1.25, 1.25)


def test_equal_values_give_no_width():
    assert paired_interval(np.full(5, 0.5)) == (0.5, 0.5)


def test_no_values_or_an_unknown_one_give_no_interval():
    assert all(map(math.isnan, paired_interval(np.array([]))))
    assert all(map(math.isnan, paired_interval(np.array([1.0, math.nan]))))


def test_two_values_are_drawn_as_both_or_as_one_twice():
    low, high = paired_interval(np.array([0.0, 1.0]))  # means 0, .5, 1 with chances 1/4, 1/2, 1/4
    assert (low, high) == (0.0, 1.0)


def test_an_interval_of_many_values_is_the_normal_one():
    values = np.random.default_rng(3).normal(1.0, 0.2, 400)
    low, high = paired_interval(values)
    half = 1.645 * values.std() / math.sqrt(400)
    assert low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.15 * half)


def test_it_covers_the_true_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(8)
    covered = 0
    for _ in range(200):
        low, high = paired_interval(rng.normal(0.0, 1.0, 30))
        covered += low <= 0.0 <= high
    assert 160 <= covered <= 193  # 180 expected; 30 values make it a little narrow


def test_the_same_values_give_the_same_interval():
    values = np.random.default_rng(1).normal(size=7)
    assert paired_interval(values) == paired_interval(values.copy())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12))
def test_an_interval_lies_within_its_values(values):
    low, high = paired_interval(np.array(values))
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
