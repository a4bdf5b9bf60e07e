"""Intervals of differences that are paired by seed."""

from __future__ import annotations

import numpy as np

GENERATOR_SEED = 20_250_101
NUM_RESAMPLES = 2000
CONFIDENCE = 0.90


def paired_interval(values: np.ndarray) -> tuple[float, float]:
    """90 % percentile bootstrap interval of the mean of one value a seed.

    Pairing has happened before: each value is a ratio or difference of two runs of the same seed, which meet
    the same requests in the same order. The generator's seed is fixed, so an interval is a function of its
    values alone. With one value both ends are that value; with few, the interval is too narrow, as percentile
    intervals are.

    values      [seeds] float64
    returns     low and high
    Source:     Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3.
    """
    if not len(values) or not np.isfinite(values).all():
        return float("nan"), float("nan")
    rng = np.random.default_rng(GENERATOR_SEED)
    drawn = rng.integers(0, len(values), (NUM_RESAMPLES, len(values)))
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(values[drawn].mean(axis=1), (tail, 1.0 - tail))
    return float(low), float(high)
