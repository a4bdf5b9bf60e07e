"""The chance that each draft survives verification: the score every ranking policy sorts by.

Arrays here are depth-major, [D, B]: folding along D and counting a request's kept drafts are then sums of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from specsim.core import Array
from specsim.policies.lean_numpy import LEAN_NUMPY

UNDRAFTED = -(2.0**-40)
"""Score of a position that holds no draft: below every real one, and nothing in the fixed point of sums."""


def namespace(array: Array) -> Any:
    """The array API functions for `array`: the library's own where they comply, which numpy's do."""
    return LEAN_NUMPY if isinstance(array, np.ndarray) else array_namespace(array)


def survival(confidence: Array, xp: Any) -> Array:
    """Probability that each draft survives verification up to each position.

    confidence  [B, D] float64, chance that a draft is accepted once those before it are, in [0, 1]
    xp          array namespace of `confidence`
    returns     [D, B] float64, non-increasing along D

    A left fold, not a library's cumulative product: those associate differently per device, which breaks
    equality of bits. Only numpy's `accumulate` is documented to be that fold, and it takes a fifth of the time.
    """
    columns = xp.permute_dims(confidence, (1, 0))
    if xp is LEAN_NUMPY or xp is np:
        return np.multiply.accumulate(columns, axis=0)
    folded = [columns[0, :]]
    for position in range(1, columns.shape[0]):
        folded.append(folded[-1] * columns[position, :])
    return xp.stack(folded, axis=0)


def survival_scores(confidence: Array, num_drafts: Array, xp: Any) -> Array:
    """Survival where there is a draft, `UNDRAFTED` where there is none.

    confidence  [B, D] float64
    num_drafts  [B] int64, in [0, D]
    returns     [D, B] float64, non-increasing along D
    """
    positions = xp.arange(confidence.shape[1], device=confidence.device)
    return xp.where(positions[:, None] < num_drafts, survival(confidence, xp), UNDRAFTED)
