"""Drafts under verification, and the laws they are held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specsim.core import Array
from specsim.errors import InputError


@dataclass(frozen=True, slots=True)
class Candidates:
    """The drafts of one step and the laws of target and drafter. What lies beyond `num_verify` is never read.

    tokens      [B, D] int64, drafted tokens, in [0, V)
    num_verify  [B] int64, leading drafts that are verified, in [0, D]
    target_law  [B, D + 1, V] float, the target's law of each position given the drafts before it
    draft_law   [B, D, V] float, the law each draft was drawn from, after every filter (None: drafts are certain
                tokens, as of a greedy or n-gram drafter)
    """

    tokens: Array
    num_verify: Array
    target_law: Array
    draft_law: Array | None = None


def refuse_nan(values: Array, whose: str, xp: Any) -> None:
    """Raise where a law that is read holds NaN: it would be taken for an ordinary rejection.

    values  [B, P] float, a number of each law, NaN where the law holds one; 0 where nothing is read
    whose   `target` or `draft`
    Raises  InputError naming the first request and position
    """
    faulty = xp.isnan(values)
    if not bool(xp.any(faulty)):
        return
    request, position = divmod(int(xp.argmax(xp.astype(xp.reshape(faulty, (-1,)), xp.int64))), values.shape[1])
    raise InputError(
        f"the {whose} law of request {request} at position {position} holds NaN: allowed are probabilities"
    )
