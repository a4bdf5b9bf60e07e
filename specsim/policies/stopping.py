"""Where a draft ends that goes on until a position fails a test."""

from __future__ import annotations

from typing import Any

from specsim.core import Array


def until_failure(passes: Array, num_drafts: Array, keep: bool, xp: Any) -> Array:
    """Draft tokens of each request when drafting stops at the first position that fails.

    passes      [B, D] bool, whether drafting may go on at each position
    num_drafts  [B] int64, drafts there are
    keep        whether the draft that failed is kept: then its own token may have been read
    returns     [B] int64, in [min(1, num_drafts), num_drafts]
    """
    failed = xp.cumulative_sum(xp.astype(~passes, xp.int64), axis=1)
    lengths = xp.sum(xp.astype(failed == 0, xp.int64), axis=1)
    lengths = lengths + 1 if keep else xp.where(lengths < 1, 1, lengths)
    return xp.where(lengths < num_drafts, lengths, num_drafts)
