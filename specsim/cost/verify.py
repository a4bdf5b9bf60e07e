"""What verifying costs: a staircase inside capture sizes, straight lines between eager cells."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from specsim.cost.cells import Cell
from specsim.cost.curves import Curve, Edge, bracket, lerp

Floats: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Ints: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

ROUNDING = 1e-6
"""Tokens by which an interpolated range end may be missed; counts are integers, so no real excess is so small."""


class VerifySurface:
    """Seconds of the verify phase over batch and tokens, at one context.

    A captured graph costs what its bucket costs, so tokens are rounded up to a capture size before anything
    is looked up. Above the largest one the engine runs eagerly, and only cells measured eagerly are used.
    """

    def __init__(self, cells: Iterable[Cell], capture_sizes: tuple[int, ...]) -> None:
        self._sizes = capture_sizes
        self._limit = capture_sizes[-1] if capture_sizes else 0
        captured: dict[int, dict[int, float]] = {}
        eager: dict[int, dict[int, float]] = {}
        for cell in cells:
            assert cell.tokens is not None
            points = captured if cell.tokens <= self._limit else eager
            points.setdefault(cell.batch, {})[cell.tokens] = cell.seconds
        self._captured = {batch: Curve(points) for batch, points in captured.items()}
        self._eager = {batch: Curve(points) for batch, points in eager.items()}
        self._batches = sorted(captured.keys() | eager.keys())
        self._heights = {batch: _heights(self._captured.get(batch), capture_sizes) for batch in self._batches}

    def at(self, batch: int, tokens: Ints, edge: Edge) -> Floats:
        """Seconds of verifying each number of tokens.

        batch    requests in the step
        tokens   [N] int64, rising
        edge     what to do outside the measured range
        returns  [N] float64
        """
        if not self._batches[0] <= batch <= self._batches[-1]:
            edge.beyond("verify batch", batch, f"{self._batches[0]} to {self._batches[-1]}")
        split = int(np.searchsorted(tokens, self._limit, side="right"))
        parts = []
        if split:
            parts.append(self._staircase(batch, tokens[:split], edge))
        if split < len(tokens):
            parts.append(self._line(batch, tokens[split:], edge))
        return np.concatenate(parts)

    @property
    def flat(self) -> bool:
        """Whether no measured batch costs more with more tokens, to 1 %."""
        rows = [*self._captured.values(), *self._eager.values()]
        return all(row.flat for row in rows) and any(len(row.knots) > 1 for row in rows)

    def _staircase(self, batch: int, tokens: Ints, edge: Edge) -> Floats:
        """Cost at the bucket each count is padded to, between the neighbouring batches that reach the bucket."""
        low, high, weight = self._neighbours(batch)
        first, last = self._heights[low], self._heights[high]
        heights = np.where(np.isnan(first), last, np.where(np.isnan(last), first, lerp(first, last, weight)))
        index = np.searchsorted(self._sizes, tokens)
        missing = np.isnan(heights[index])
        if missing.any():
            rows = {b: self._captured[b] for b in (low, high) if b in self._captured}
            spans = ", ".join(f"{row.low} to {row.high} at batch {b}" for b, row in rows.items())
            bucket = self._sizes[index[missing][0]]
            edge.beyond("captured verify tokens", f"{bucket} at batch {batch}", spans or "none")
            nearest = _nearest(self._captured or self._eager, batch)
            heights = np.where(np.isnan(heights), nearest.at(np.array(self._sizes, np.float64)), heights)
        return np.asarray(heights[index])

    def _line(self, batch: int, tokens: Ints, edge: Edge) -> Floats:
        """Cost between eager cells at the neighbouring batches."""
        if self._sizes:
            edge.note(f"above the largest captured size ({self._limit} tokens) the eager curve is used")
        low, high, weight = self._eager_neighbours(batch, edge)
        floor = (1.0 - weight) * low.low + weight * high.low
        reach = (1.0 - weight) * low.high + weight * high.high
        if tokens[0] < floor - ROUNDING:
            if self._sizes:
                edge.note("between the largest captured size and the first eager cell, that cell is charged")
            else:
                edge.beyond("verify tokens", f"{tokens[0]} at batch {batch}", f"from {floor:g} there")
        if tokens[-1] > reach + ROUNDING:
            edge.beyond("verify tokens", f"{tokens[-1]} at batch {batch}", f"up to {reach:g} there")
        if low is high:
            return np.asarray(low.at(tokens.astype(np.float64)))
        at_low, at_high = split_tokens(tokens, weight, low, high)
        return np.asarray(lerp(low.at(at_low), high.at(at_high), weight))

    def _eager_neighbours(self, batch: int, edge: Edge) -> tuple[Curve, Curve, float]:
        """Eager curves around a batch and the weight of the second; one alone where only one was measured."""
        low, high, weight = self._neighbours(batch)
        near = [b for b in (low, high) if b in self._eager]
        if not near:
            edge.beyond("eager verify batch", batch, ", ".join(map(str, sorted(self._eager))) or "none")
            only = _nearest(self._eager or self._captured, batch)
            return only, only, 0.0
        return self._eager[near[0]], self._eager[near[-1]], weight if len(near) == 2 else 0.0

    def _neighbours(self, batch: int) -> tuple[int, int, float]:
        """Measured batches around this one; beyond the largest, that one alone."""
        low, high, weight = bracket(self._batches, batch)
        return (high, high, 0.0) if weight > 1.0 else (low, high, weight)


def split_tokens(tokens: Ints, weight: float, low: Curve, high: Curve) -> tuple[Floats, Floats]:
    """Token counts to read at two neighbouring batches for a batch between them.

    The same count at both as far as both measured it; beyond, the batch that measured more takes the rest, so
    that their weighted mean is the count asked for. A cost linear in tokens and batch comes out exactly, and
    the result is continuous and never falls where the measured curves do not.

    tokens   [N] int64
    weight   of `high`, strictly between 0 and 1
    low      curve of the smaller batch
    high     curve of the larger batch
    returns  ([N] float64, [N] float64), counts for `low` and `high`
    """
    shared = np.clip(tokens, low.low, low.high)
    at_high = np.clip((tokens - (1.0 - weight) * shared) / weight, high.low, high.high)
    at_low = np.clip((tokens - weight * at_high) / (1.0 - weight), low.low, low.high)
    rest = np.maximum(tokens - ((1.0 - weight) * low.high + weight * high.high), 0.0)
    return at_low + rest, at_high + rest


def bucket_paid(tokens: int, capture_sizes: tuple[int, ...]) -> int:
    """Tokens that a step of `tokens` is padded to: the next capture size, itself above the largest."""
    index = bisect_left(capture_sizes, tokens)
    return capture_sizes[index] if index < len(capture_sizes) else tokens


def _nearest(rows: dict[int, Curve], batch: int) -> Curve:
    return rows[min(rows, key=lambda measured: (abs(measured - batch), measured))]


def _heights(row: Curve | None, sizes: tuple[int, ...]) -> Floats:
    """[len(sizes)] float64 seconds at each capture size, NaN where a batch was not measured that far."""
    if row is None:
        return np.full(len(sizes), np.nan)
    buckets = np.array(sizes, dtype=np.float64)
    return np.where((buckets < row.low) | (buckets > row.high), np.nan, row.at(buckets))
