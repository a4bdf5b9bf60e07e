"""Rank every (request, position) of a step, estimate what each budget brings, keep the best.

Nothing here reads a value back to the host or has a shape that depends on data, so the same functions run in a
simulator on numpy and inside a GPU step. Ties are broken by (request, position), so a kept set is a prefix.
"""

from __future__ import annotations

from typing import Any

from specsim.core import FIXED_POINT, Array


def best_first(scores: Array, xp: Any) -> Array:
    """Negated scores from best to worst: the standard's sort is ascending, and turning it round costs a pass.

    scores   [D, B] float64
    returns  [D * B] float64, ascending, each the negative of a score
    """
    return xp.sort(-xp.reshape(scores, (-1,)))


def accepted_estimate(negated: Array, budgets: Array, xp: Any) -> Array:
    """Expected accepted drafts at each budget: the sum of the best scores, in fixed point.

    negated  [N] float64, see `best_first`
    budgets  [R] int64, in [0, N]
    returns  [R] int64, units of 1 / FIXED_POINT

    Integers, so that a sum is the same in any order on any device.
    """
    fixed = xp.astype(xp.round(negated * FIXED_POINT), xp.int64)
    return -xp.take(xp.cumulative_sum(fixed, include_initial=True), budgets, axis=0)


def keep_best(scores: Array, negated: Array, budget: Array, xp: Any) -> Array:
    """Verified prefix length of each request when the `budget` best positions are kept.

    scores   [D, B] float64, non-increasing along D
    negated  [D * B] float64, `best_first(scores)`
    budget   [1] int64, in [0, number of drafts]
    returns  [B] int64, summing to `budget`

    The score at the cut separates what is kept from what is not. Of the positions level with it, the first by
    (request, position) fill what room is left; those of one request are neighbours, so counting them is enough.
    """
    # With budget 0 the cut is the best score itself: nothing is above it and there is no room.
    cut = -xp.take(negated, budget - xp.astype(budget > 0, xp.int64), axis=0)
    counted = xp.concat([scores > cut, scores == cut], axis=1)  # together: each pass costs more than its numbers
    counts = xp.sum(xp.astype(counted, xp.int64), axis=0)
    above, level = counts[: scores.shape[1]], counts[scores.shape[1] :]
    room = budget - xp.sum(above) - (xp.cumulative_sum(level) - level)
    room = xp.where(room > 0, room, 0)
    return above + xp.where(room < level, room, level)
