"""The chance that each draft survives verification: the score every ranking policy sorts by."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from specsim.core import Array

UNDRAFTED = -1.0
"""Score of a position that holds no draft: below every real one, so it is never kept."""


def namespace(array: Array) -> Any:
    """The array API functions for `array`; numpy itself where its own functions already comply."""
    return np if isinstance(array, np.ndarray) else array_namespace(array)


def survival(confidence: Array, xp: ModuleType | Any) -> Array:
    """Probability that each draft survives verification up to each position.

    confidence  [B, D] float64, chance that a draft is accepted once those before it are, in [0, 1]
    xp          array namespace of `confidence`
    returns     [B, D] float64, non-increasing along D

    A left fold, not a library's cumulative product: those associate differently per device, which breaks
    equality of bits. One-dimensional columns joined once are faster than stacking along the last axis.
    """
    batch, depth = confidence.shape
    columns = [confidence[:, 0]]
    for k in range(1, depth):
        columns.append(columns[-1] * confidence[:, k])
    return xp.permute_dims(xp.reshape(xp.concat(columns), (depth, batch)), (1, 0))


def survival_scores(confidence: Array, num_drafts: Array, xp: ModuleType | Any) -> Array:
    """Survival where there is a draft, `UNDRAFTED` where there is none.

    confidence  [B, D] float64
    num_drafts  [B] int64, in [0, D]
    returns     [B, D] float64, non-increasing along D
    """
    positions = xp.arange(confidence.shape[1], device=confidence.device)
    drafted = xp.reshape(positions, (1, -1)) < xp.reshape(num_drafts, (-1, 1))
    return xp.where(drafted, survival(confidence, xp), UNDRAFTED)
