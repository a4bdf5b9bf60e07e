"""Curves from a raw score to a probability, one a draft position, read by operations that are exact everywhere.

A logistic or a power would need `exp` or `log`, whose last bits differ between libraries and devices. So whatever a
calibrator fits, it fits on the host and lays down as values at fixed knots; reading between them takes only
comparison, `+ - * /` and look-ups.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specsim.core import Array, Score

PROBABILITY_KNOTS: np.ndarray = np.concatenate([[0.0], 1.0 / (1.0 + np.exp(-np.linspace(-8.0, 8.0, 63))), [1.0]])
"""[65], evenly spaced in log odds: confidences crowd near 1."""

MARGIN_KNOTS: np.ndarray = 40.0 * np.linspace(0.0, 1.0, 65) ** 2
"""[65] top-2 logit margins, denser near 0."""


def knots_of(score: Score) -> np.ndarray:
    """[G] float64, rising: where curves over this score have their values."""
    return MARGIN_KNOTS if score == "margin" else PROBABILITY_KNOTS


def prior_curve(score: Score) -> np.ndarray:
    """[G] float64, what is believed before anything was observed: the probability itself, or a two-way softmax."""
    return 1.0 / (1.0 + np.exp(-MARGIN_KNOTS)) if score == "margin" else PROBABILITY_KNOTS.copy()


def read_curves(raw: Array, knots: Array, values: Array, xp: Any) -> Array:
    """Read each score on the curve of its position, linearly between knots, held at both ends.

    raw      [B, D] float64; NaN reads as the curve's first value
    knots    [G] float64, rising
    values   [D, G] float64
    returns  [B, D] float64
    """
    batch, depth = raw.shape
    last = knots.shape[0] - 2
    flat = xp.reshape(raw, (-1,))
    left = xp.searchsorted(knots, flat, side="right") - 1
    left = xp.where(left > 0, left, 0)
    left = xp.where(left < last, left, last)
    lower, upper = xp.take(knots, left, axis=0), xp.take(knots, left + 1, axis=0)
    share = (flat - lower) / (upper - lower)
    share = xp.where(share > 0.0, share, 0.0)
    share = xp.where(share < 1.0, share, 1.0)
    rows = xp.arange(depth, dtype=xp.int64, device=raw.device) * knots.shape[0]
    place = left + xp.reshape(xp.broadcast_to(rows, (batch, depth)), (-1,))
    table = xp.reshape(values, (-1,))
    first, second = xp.take(table, place, axis=0), xp.take(table, place + 1, axis=0)
    return xp.reshape(first + share * (second - first), (batch, depth))
