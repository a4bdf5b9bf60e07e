"""A weighted histogram on a logarithmic scale: quantiles of millions of values in constant memory."""

from __future__ import annotations

import numpy as np

SMALLEST = 1e-7
LARGEST = 1e5
GROWTH = 1.002
"""Ratio of neighbouring bin edges: a quantile is off by at most half of it, 0.1 %."""


class LogHistogram:
    """Counts positive values in bins whose edges grow by 0.2 %.

    Values below 1e-7 count as 1e-7 and values above 1e5 as 1e5; mean and variance are exact.
    Incoming values are buffered, so that adding a few at a time costs an append.
    Source: the relative-error sketch of Masson, Rim and Lee, DDSketch, VLDB 2019.
    """

    BUFFER = 256

    def __init__(self) -> None:
        num_bins = int(np.ceil(np.log(LARGEST / SMALLEST) / np.log(GROWTH))) + 1
        self.counts = np.zeros(num_bins)
        self.count = 0.0
        self._sum = 0.0
        self._sum_of_squares = 0.0
        self._values: list[np.ndarray] = []
        self._weights: list[np.ndarray] = []
        self._totals: list[np.ndarray] = []
        self._counts: list[np.ndarray] = []

    def add(self, values: np.ndarray, weights: np.ndarray) -> None:
        """Count each value `weights` times; the arrays must not be changed afterwards.

        values      [N] float64, at least 0
        weights     [N] float64 or int64, at least 0
        """
        self._values.append(values)
        self._weights.append(weights)
        if len(self._values) >= self.BUFFER:
            self._flush()

    def add_spread(self, totals: np.ndarray, counts: np.ndarray) -> None:
        """Count each total spread evenly over its count: `counts` times the value total / count.

        totals      [N] float64, at least 0
        counts      [N] int64, at least 1
        """
        self._totals.append(totals)
        self._counts.append(counts)
        if len(self._totals) >= self.BUFFER:
            self._spread()

    def _spread(self) -> None:
        if self._totals:
            totals, counts = np.concatenate(self._totals), np.concatenate(self._counts)
            self._totals, self._counts = [], []
            self._count(totals / counts, counts.astype(np.float64))

    def _flush(self) -> None:
        self._spread()
        if self._values:
            values, weights = np.concatenate(self._values), np.concatenate(self._weights).astype(np.float64)
            self._values, self._weights = [], []
            self._count(values, weights)

    def _count(self, values: np.ndarray, weights: np.ndarray) -> None:
        clipped = np.clip(values, SMALLEST, LARGEST)
        bins = np.rint(np.log(clipped / SMALLEST) / np.log(GROWTH)).astype(np.int64)
        self.counts += np.bincount(bins, weights=weights, minlength=len(self.counts))
        self.count += float(weights.sum())
        self._sum += float((values * weights).sum())
        self._sum_of_squares += float((values * values * weights).sum())

    def mean(self) -> float:
        """Weighted mean; NaN when empty."""
        self._flush()
        return self._sum / self.count if self.count else float("nan")

    def variance(self) -> float:
        """Weighted population variance; NaN when empty."""
        self._flush()
        if not self.count:
            return float("nan")
        return max(0.0, self._sum_of_squares / self.count - self.mean() ** 2)

    def quantile(self, fraction: float) -> float:
        """The smallest value that `fraction` of the weight does not exceed, to 0.1 %; NaN when empty."""
        self._flush()
        if not self.count:
            return float("nan")
        reached = np.cumsum(self.counts)
        # Of the sum as accumulated, so that fraction 1 is reached; above 0, so that fraction 0 skips empty bins.
        wanted = max(fraction * reached[-1], np.finfo(np.float64).tiny)
        return float(SMALLEST * GROWTH ** int(np.searchsorted(reached, wanted, side="left")))

    def merge(self, other: LogHistogram) -> None:
        """Add everything `other` has counted."""
        self._flush()
        other._flush()
        self.counts += other.counts
        self.count += other.count
        self._sum += other._sum
        self._sum_of_squares += other._sum_of_squares
