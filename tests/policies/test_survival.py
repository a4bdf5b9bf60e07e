"""Survival: a left fold in float64 that is the same in bits on every library."""

import numpy as np
import pytest

from specsim.policies.lean_numpy import LEAN_NUMPY
from specsim.policies.survival import UNDRAFTED, namespace, survival, survival_scores


def by_hand(confidence):
    """[D, B] the left fold in Python floats."""
    rows, depth = confidence.shape
    folded = np.empty((depth, rows))
    for request in range(rows):
        product = 1.0
        for position in range(depth):
            product = product * float(confidence[request, position])
            folded[position, request] = product
    return folded


def bits(array):
    return np.from_dlpack(array).tobytes()


def test_survival_is_the_product_of_the_confidences_up_to_each_position():
    scores = survival(np.array([[0.5, 0.5, 0.5], [1.0, 0.25, 0.0]]), np)
    assert scores.tolist() == [[0.5, 1.0], [0.25, 0.25], [0.125, 0.0]]


def test_every_library_folds_to_the_bits_of_python_floats(library):
    rng = np.random.default_rng(7)
    confidence = np.where(rng.random((64, 15)) < 0.3, 1.0, rng.beta(4, 1.2, (64, 15)))
    confidence[3] = 1e-30  # underflows to a subnormal, then to 0
    confidence[4, 2] = 0.0
    array = library.asarray(confidence)
    assert bits(survival(array, namespace(array))) == by_hand(confidence).tobytes()


def test_survival_never_rises_with_depth_even_when_it_underflows():
    rng = np.random.default_rng(8)
    scores = survival(rng.random((200, 40)) ** 20, np)
    assert np.all(np.diff(scores, axis=0) <= 0)


def test_a_position_without_a_draft_scores_below_a_draft_that_cannot_survive():
    scores = survival_scores(np.array([[0.0, 0.9]]), np.array([1]), np)
    assert scores.tolist() == [[0.0], [UNDRAFTED]]


def test_a_position_without_a_draft_counts_for_nothing_in_fixed_point():
    assert round(UNDRAFTED * 2**30) == 0
    assert UNDRAFTED < 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_arrays_are_planned_on_lean_numpy(dtype):
    assert namespace(np.zeros(1, dtype)) is LEAN_NUMPY


def test_the_fold_is_the_same_under_either_name_of_numpy():
    confidence = np.random.default_rng(0).random((6, 9))
    assert survival(confidence, LEAN_NUMPY).tobytes() == survival(confidence, np).tobytes()
