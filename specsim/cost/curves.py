"""Look-up between measured points: exact at every point, between its neighbours' values elsewhere."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specsim.errors import InputError

REMEDY = "and extrapolation is off (--extrapolate turns it on and marks the results)"


@dataclass(slots=True)
class Edge:
    """What happens outside the measured range: refuse, or go on and say so.

    where        the table, for the error
    extrapolate  whether to go on
    notes        what was said, each once, in order
    """

    where: str
    extrapolate: bool = False
    notes: dict[str, None] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """Say something once."""
        self.notes[text] = None

    def beyond(self, axis: str, asked: object, measured: str) -> None:
        """Something outside the measured range was asked.

        axis      what is asked along, such as `verify batch`
        asked     the value
        measured  the allowed values
        Raises    InputError unless extrapolating
        """
        if not self.extrapolate:
            raise InputError(f"{self.where}: {axis} {asked} is outside what was measured ({measured}) {REMEDY}")
        self.note(f"extrapolated beyond the measured {axis}")


def lerp(low: Any, high: Any, weight: Any) -> Any:
    """Between `low` (weight 0) and `high` (weight 1), not even a rounding error outside them.

    low      float64, any shape
    high     the same shape
    weight   from 0; above 1 the line goes on, but does not fall
    returns  the same shape; `low` and `high` exactly at weight 0 and 1
    """
    inside = low * (1.0 - weight) + high * weight
    inside = np.clip(inside, np.minimum(low, high), np.maximum(low, high))
    return np.where(weight > 1.0, high + (weight - 1.0) * np.maximum(high - low, 0.0), inside)


def bracket(knots: Sequence[int], at: float) -> tuple[int, int, float]:
    """Neighbouring knots of a point, and its weight between them.

    knots    rising
    at       the point
    returns  (low, high, weight): equal knots and weight 0 on a knot, below the first and with one knot only;
             the last two and a weight above 1 beyond the last
    """
    above = bisect_right(knots, at)
    if above == 0 or len(knots) == 1:
        return knots[0], knots[0], 0.0
    if knots[above - 1] == at:
        return knots[above - 1], knots[above - 1], 0.0
    high = min(above, len(knots) - 1)
    low = high - 1
    return knots[low], knots[high], (at - knots[low]) / (knots[high] - knots[low])


class Curve:
    """Seconds along one axis, linear between the measured points."""

    def __init__(self, points: dict[int, float]) -> None:
        self.knots = sorted(points)
        self.low, self.high = self.knots[0], self.knots[-1]
        self._x = np.array(self.knots, dtype=np.float64)
        self._y = np.array([points[knot] for knot in self.knots], dtype=np.float64)

    def at(self, x: Any) -> Any:
        """Seconds at each x: the first value below the range, the last slope beyond it."""
        if len(self._x) == 1:
            return np.full(np.shape(x), self._y[0])
        left = np.clip(np.searchsorted(self._x, x, side="right") - 1, 0, len(self._x) - 2)
        weight = (x - self._x[left]) / (self._x[left + 1] - self._x[left])
        return lerp(self._y[left], self._y[left + 1], np.maximum(weight, 0.0))

    @property
    def flat(self) -> bool:
        """Whether the largest cost is within 1 % of the smallest."""
        return bool(self._y.max() <= self._y.min() * 1.01)
