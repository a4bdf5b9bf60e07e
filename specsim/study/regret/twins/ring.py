"""Rings that grow with the steps played, so that a window longer than a run costs no memory."""

from __future__ import annotations

import numpy as np

FIRST = 64
"""Most places of a ring before it grows."""


def enlarged(ring: np.ndarray, axis: int = 0) -> np.ndarray:
    """A ring that has not wrapped yet, with twice as many places along `axis`; the new ones are zero."""
    return np.concatenate([ring, np.zeros_like(ring)], axis=axis)
