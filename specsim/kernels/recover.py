"""The token that follows the accepted drafts: recovered after a rejection, a bonus otherwise."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from specsim.core import Array
from specsim.kernels.candidates import Candidates, refuse_nan

ROUNDING = 4.0
"""Target and draft that differ by no more than this many units of rounding are the same number: their difference is
noise, and a draw from noise is a draw from an arbitrary token."""


def recover(candidates: Candidates, num_accepted: Array, uniform: Array) -> Array:
    """Draw the token that follows the accepted drafts.

    num_accepted  [B] int64, see `accept`
    uniform       [B] float, in [0, 1)
    returns       [B] int64, the recovered or bonus token, in [0, V)
    Raises        InputError where a law that is read holds NaN
    """
    return draw(recovery_weights(candidates, num_accepted), uniform)


def recovery_weights(candidates: Candidates, num_accepted: Array) -> Array:
    """What each token weighs in that draw.

    After a rejection the residual max(target - draft, 0), a certain token's law being 1 at that token; after full
    acceptance the target itself, which is the residual of a draft law of zeros.

    num_accepted  [B] int64, see `accept`
    returns       [B, V] float, at least 0, not normalised

    Source: Leviathan et al. (arXiv 2211.17192), algorithm 1.
    """
    xp = array_namespace(candidates.tokens, candidates.target_law)
    rejected = num_accepted < candidates.num_verify
    target = _at(num_accepted, candidates.target_law, xp.ones_like(rejected), "target", xp)
    if candidates.tokens.shape[1] == 0:
        return target
    return residual(target, _rejected_law(candidates, num_accepted, rejected, target, xp), xp)


def residual(target: Array, draft: Array, xp: Any) -> Array:
    """max(target - draft, 0), or the target where nothing but rounding is left of it.

    target   [B, V] float, probabilities
    draft    [B, V] float, probabilities; zeros leave the target
    returns  [B, V] float, at least 0, not normalised

    A probability may come from a logarithm, whose rounding is relative to the logarithm: the smaller the probability,
    the coarser. Equal laws reject nothing; where rounding, or an injected uniform, rejects all the same, nothing is
    left.
    """
    excess = target - draft
    logarithm = xp.log(xp.where(target > 0.0, target, 1.0))
    real = excess > ROUNDING * xp.finfo(target.dtype).eps * (1.0 - logarithm) * target
    return xp.where(xp.any(real, axis=1)[:, None], xp.where(real, excess, 0.0), target)


def draw(weights: Array, uniform: Array) -> Array:
    """Inverse of the cumulated weights: the first token whose sum exceeds that share of the total.

    weights  [B, V] float, at least 0, some positive
    uniform  [B] float, in [0, 1)
    returns  [B] int64, never a token of weight 0

    Summed in float64: over a vocabulary of 150,000 a float32 sum is off by more than most tokens weigh. A parallel scan
    may round differently at each position, and rise where nothing was added, even at the end. So only tokens that weigh
    something are drawn, and where none of them exceeds the share, the last of them.
    """
    xp = array_namespace(weights)
    sums = xp.cumulative_sum(xp.astype(weights, xp.float64), axis=1)
    share = uniform * sums[:, -1]
    weighs = weights > 0.0
    exceeds = weighs & (sums > share[:, None])
    first = xp.argmax(xp.astype(exceeds, xp.int64), axis=1)
    last = weights.shape[1] - 1 - xp.argmax(xp.astype(xp.flip(weighs, axis=1), xp.int64), axis=1)
    return xp.where(xp.any(exceeds, axis=1), first, last)


def _at(position: Array, law: Array, read: Array, whose: str, xp: Any) -> Array:
    """[B, V] float, each request's law at its own position; only where `read` may it not hold NaN."""
    row = xp.take_along_axis(law, position[:, None, None], axis=1)[:, 0, :]
    here = (xp.arange(law.shape[1], device=law.device) == position[:, None]) & read[:, None]
    refuse_nan(xp.where(here, xp.sum(row, axis=1)[:, None], 0.0), whose, xp)  # by position, to name the right one
    return row


def _rejected_law(candidates: Candidates, num_accepted: Array, rejected: Array, target: Array, xp: Any) -> Array:
    """[B, V] float, the law of the rejected draft, zeros where none was rejected."""
    position = xp.where(rejected, num_accepted, 0)
    if candidates.draft_law is None:
        token = xp.take_along_axis(candidates.tokens, position[:, None], axis=1)
        law = xp.astype(xp.arange(target.shape[1], device=target.device) == token, target.dtype)
    else:
        law = _at(position, candidates.draft_law, rejected, "draft", xp)
    return xp.where(rejected[:, None], law, 0.0)
