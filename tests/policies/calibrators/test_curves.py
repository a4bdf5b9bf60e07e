"""Curves read by exact operations: equal bits everywhere, linear between knots."""

import numpy as np
import pytest

from specsim.policies.calibrators.curves import MARGIN_KNOTS, PROBABILITY_KNOTS, prior_curve, read_curves
from specsim.policies.survival import namespace


def test_reading_is_linear_interpolation_held_at_the_ends():
    rng = np.random.default_rng(0)
    raw = np.concatenate([rng.random((50, 3)), [[-1.0, 2.0, 0.0], [1.0, 0.5, 1.0]]])
    values = np.sort(rng.random((3, 65)), axis=1)
    expected = np.stack([np.interp(raw[:, k], PROBABILITY_KNOTS, values[k]) for k in range(3)], axis=1)
    assert read_curves(raw, PROBABILITY_KNOTS, values, np) == pytest.approx(expected, abs=1e-14)


def test_every_library_reads_the_same_bits(library):
    rng = np.random.default_rng(1)
    raw = rng.random((40, 15)) * 45
    raw[3, 4] = np.nan
    values = np.sort(rng.random((15, 65)), axis=1)
    expected = read_curves(raw, MARGIN_KNOTS, values, np)
    array = library.asarray(raw.copy())
    got = read_curves(array, library.asarray(MARGIN_KNOTS), library.asarray(values), namespace(array))
    assert np.from_dlpack(got).tobytes() == expected.tobytes()


def test_the_prior_of_a_probability_is_itself_and_of_a_margin_a_two_way_softmax():
    raw = np.array([[0.0, 0.3, 0.999, 1.0]])
    values = np.repeat(prior_curve("max_prob")[None], 4, axis=0)
    assert read_curves(raw, PROBABILITY_KNOTS, values, np) == pytest.approx(raw, abs=1e-15)
    margin = np.array([[0.0, 2.5]])
    values = np.repeat(prior_curve("margin")[None], 2, axis=0)
    assert read_curves(margin, MARGIN_KNOTS, values, np) == pytest.approx(1 / (1 + np.exp(-margin)), abs=2e-3)
