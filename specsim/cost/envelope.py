"""The lower convex envelope of a cost curve: what a staircase would cost if steps could be shared."""

from __future__ import annotations

import numpy as np


def lower_envelope(seconds: np.ndarray) -> np.ndarray:
    """The largest convex curve that nowhere exceeds a curve.

    seconds  [N] float64, values at 0, 1, ..., N - 1
    returns  [N] float64; equal to `seconds` at the envelope's corners, linear between them

    Source: Andrew's monotone chain, Information Processing Letters 9(5), 1979.
    """
    if len(seconds) < 3:
        return seconds.copy()
    values = seconds.tolist()
    # A corner can only be where the curve itself bends upwards: few places of a staircase, or of straight lines.
    bends = np.flatnonzero(np.diff(seconds, 2) > 0.0) + 1
    corners: list[int] = []
    for index in (0, *bends.tolist(), len(values) - 1):
        value = values[index]
        # A corner stays only while the curve bends upwards at it.
        while len(corners) > 1:
            first, middle = corners[-2], corners[-1]
            rise, run = values[middle] - values[first], middle - first
            if (value - values[first]) * run > rise * (index - first):
                break
            corners.pop()
        corners.append(index)
    curve: np.ndarray = np.interp(np.arange(len(values)), corners, seconds[corners])
    np.minimum(curve, seconds, out=curve)  # interpolation may round above a value between corners
    return curve
