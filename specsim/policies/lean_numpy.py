"""numpy without its outer shell: the same functions, reached by the methods and ufuncs beneath them.

A plan makes some thirty calls on a few hundred numbers, so what numpy spends on dispatching keyword arguments is
more than what it spends on the numbers. Every function here returns the bits that numpy's own of that name returns;
a test compares them. What is not listed is numpy's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class LeanNumpy:
    """The array API functions of numpy that plans call, with the standard's names and arguments."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(np, name)
        setattr(self, name, value)  # the next look-up does not come here
        return value

    def take(self, x: np.ndarray, indices: np.ndarray, axis: int = 0) -> Any:
        """`x` at `indices` along an axis."""
        return x.take(indices, axis)

    def sum(self, x: np.ndarray, axis: Any = None, keepdims: Any = False) -> Any:
        """Sum along an axis, or of everything."""
        return np.add.reduce(x, axis=axis, keepdims=keepdims)

    def cumulative_sum(self, x: np.ndarray, axis: int = 0, include_initial: bool = False) -> Any:
        """Running sums along an axis; of a vector also with the empty sum in front, [N + 1]."""
        if not include_initial:
            return np.add.accumulate(x, axis=axis)
        sums = np.empty(len(x) + 1, x.dtype)
        sums[0] = 0
        np.add.accumulate(x, out=sums[1:])
        return sums

    def astype(self, x: np.ndarray, dtype: Any) -> Any:
        """A copy of another type."""
        return x.astype(dtype)

    def sort(self, x: np.ndarray) -> Any:
        """Ascending along the last axis."""
        ascending = x.copy()
        ascending.sort()
        return ascending

    def argmax(self, x: np.ndarray, axis: Any = None, keepdims: bool = False) -> Any:
        """First place of the largest value."""
        return x.argmax(axis, keepdims=keepdims)

    def reshape(self, x: np.ndarray, shape: tuple[int, ...]) -> Any:
        """The same values in another shape."""
        return x.reshape(shape)

    def permute_dims(self, x: np.ndarray, axes: tuple[int, ...]) -> Any:
        """The same values with axes in another order."""
        return x.transpose(axes)

    def round(self, x: np.ndarray) -> Any:
        """To the nearest integer, halves to even."""
        return np.rint(x)

    def concat(self, arrays: list[np.ndarray], axis: int = 0) -> Any:
        """Arrays joined along an axis."""
        return np.concatenate(arrays, axis=axis)


LEAN_NUMPY = LeanNumpy()
