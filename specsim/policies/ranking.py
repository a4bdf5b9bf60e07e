"""Rank every (request, position) of a step, estimate what each budget brings, keep the best.

Nothing here reads a value back to the host or has a shape that depends on data, so the same functions run in a
simulator on numpy and inside a GPU step. Ties are broken by (request, position), so a kept set is a prefix.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from specsim.core import FIXED_POINT, Array


def descending(scores: Array, xp: ModuleType | Any) -> Array:
    """Negated scores from best to worst. Negated because the standard's sort is ascending and a flip costs a pass.

    scores   [B, D] float64
    returns  [B * D] float64, ascending, each the negative of a score
    """
    return xp.sort(xp.reshape(-scores, (-1,)))


def accepted_estimate(negated: Array, budgets: Array, xp: ModuleType | Any) -> Array:
    """Expected accepted drafts at each budget: the sum of the best scores, in fixed point.

    negated  [N] float64, see `descending`; positions without a draft add nothing
    budgets  [R] int64, in [0, N]
    returns  [R] int64, units of 1 / FIXED_POINT

    Integers, so that the sum is the same in any order on any device.
    """
    fixed = xp.astype(xp.round(negated * FIXED_POINT), xp.int64)
    total = xp.cumulative_sum(xp.where(fixed < 0, -fixed, 0))
    some = xp.astype(budgets > 0, xp.int64)
    return xp.take(total, budgets - some, axis=0) * some


def keep_best(scores: Array, negated: Array, budget: Array, xp: ModuleType | Any) -> Array:
    """Verified prefix length of each request when the `budget` best positions are kept.

    scores   [B, D] float64, non-increasing along D
    negated  [B * D] float64, `descending(scores)`
    budget   [1] int64, in [0, number of drafts]
    returns  [B] int64, summing to `budget`

    The score at the cut separates; of those equal to it, the first by (request, position) fill what is left.
    """
    some = xp.astype(budget > 0, xp.int64)
    cut = -xp.take(negated, budget - some, axis=0)
    above = xp.astype(scores > cut, xp.int64)
    level = xp.astype(scores == cut, xp.int64)
    level_rank = xp.reshape(xp.cumulative_sum(xp.reshape(level, (-1,))), scores.shape)
    room = budget - xp.sum(above)
    # With budget 0 the cut is the best score itself: nothing is above it and there is no room.
    return xp.sum(above + xp.where(level_rank <= room, level, 0), axis=1)
