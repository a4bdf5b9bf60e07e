"""Lean numpy returns numpy's own bits."""

import numpy as np
import pytest

from specsim.policies.lean_numpy import LEAN_NUMPY

RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((7, 5)) * 1e3
VECTOR = RNG.integers(-(2**40), 2**40, 33)
HALVES = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e-9, 2.0**52 + 0.5])

CALLS = [
    ("take", (MATRIX, np.array([3, 0, 6])), {"axis": 0}),
    ("sum", (MATRIX,), {}),
    ("sum", (MATRIX,), {"axis": 0}),
    ("sum", (MATRIX > 0,), {"axis": 1}),
    ("sum", (VECTOR,), {"keepdims": True}),
    ("cumulative_sum", (VECTOR,), {}),
    ("cumulative_sum", (VECTOR,), {"include_initial": True}),
    ("cumulative_sum", (VECTOR[:0],), {"include_initial": True}),
    ("cumulative_sum", (VECTOR.reshape(3, 11),), {"axis": 1}),
    ("astype", (MATRIX, np.int64), {}),
    ("sort", (MATRIX.ravel(),), {}),
    ("argmax", (MATRIX,), {}),
    ("argmax", (np.array([1.0, 3.0, 3.0]),), {"keepdims": True}),
    ("reshape", (MATRIX, (-1,)), {}),
    ("permute_dims", (MATRIX, (1, 0)), {}),
    ("round", (HALVES,), {}),
    ("concat", ([MATRIX, MATRIX],), {"axis": 1}),
    ("where", (MATRIX > 0, MATRIX, 0.0), {}),
]


@pytest.mark.parametrize(("name", "arguments", "options"), CALLS)
def test_each_function_returns_numpys_bits_and_changes_nothing(name, arguments, options):
    before = [np.copy(argument) for argument in arguments if isinstance(argument, np.ndarray)]
    got, expected = (np.asarray(getattr(xp, name)(*arguments, **options)) for xp in (LEAN_NUMPY, np))
    assert (got.dtype, got.shape, got.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
    after = [argument for argument in arguments if isinstance(argument, np.ndarray)]
    assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))


def test_what_is_not_listed_is_numpys_own():
    assert LEAN_NUMPY.where is np.where
    assert LEAN_NUMPY.int64 is np.int64
    with pytest.raises(AttributeError):
        LEAN_NUMPY.no_such_function  # noqa: B018
