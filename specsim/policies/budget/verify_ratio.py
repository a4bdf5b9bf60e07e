"""How many drafts a ratio of the full step stands for: the paper's count and the authors' code's."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import Field

from specsim.core import Array

Ratio = Annotated[float, Field(gt=0, le=1)]
"""Share of a step's drafts (or, in the code's count, of its tokens) that is verified."""

RatioCount: TypeAlias = Literal["paper", "code"]
"""`paper`: K = ceil(ratio * drafts). `code`: K = max(0, ceil(ratio * (B + drafts)) - B), anchors counted in."""

LARGEST_DENOMINATOR = 10**6
"""Ratios are fractions up to this denominator: integer arithmetic never rounds 0.07 * 100 up to 8."""


def as_fractions(ratios: tuple[float, ...]) -> np.ndarray:
    """Each ratio as a numerator over a denominator.

    returns  [2, R] int64
    """
    fractions = [Fraction(ratio).limit_denominator(LARGEST_DENOMINATOR) for ratio in ratios]
    return np.array([[f.numerator for f in fractions], [f.denominator for f in fractions]], dtype=np.int64)


def drafts_at_ratio(fractions: Array, num_drafts: Array, count: RatioCount, xp: Any) -> Array:
    """Drafts to verify at each ratio.

    fractions   [2, R] int64, see `as_fractions`, on the library and device of `num_drafts`
    num_drafts  [B] int64
    returns     [R] int64, in [0, sum of num_drafts]

    Source: D-cut, section on candidate ratios (`paper`); the authors' engine patch (`code`).
    """
    numerator, denominator = fractions[0, :], fractions[1, :]
    anchors = num_drafts.shape[0] if count == "code" else 0
    kept = (numerator * (xp.sum(num_drafts) + anchors) + (denominator - 1)) // denominator
    if count == "paper":
        return kept
    return xp.where(kept > anchors, kept - anchors, 0)
