"""The inverse of a cumulated law that is cut into chunks, in Triton: what the draws of `verify_triton` share."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tempered(value, largest, temperature):
    """Logits over temperature, the largest 0. A row of nothing but -inf gives NaN nowhere: it stays -inf."""
    return tl.where(value == float("-inf"), value, (value - largest) / temperature)


@triton.jit
def first_index(mask, index, SIZE: tl.constexpr):
    """The first index where the mask holds, SIZE where it does nowhere."""
    return tl.min(tl.where(mask, index, SIZE), axis=0)


@triton.jit
def inverse(weights, share, index, SIZE: tl.constexpr):
    """The first index whose sum of weights exceeds the share; where none does, the last that weighs something."""
    weighs = weights > 0.0
    first = first_index(weighs & (tl.cumsum(weights, 0) > share), index, SIZE)
    last = tl.max(tl.where(weighs, index, 0), axis=0)
    return tl.where(first < SIZE, first, last)


@triton.jit
def share_of_chunks(sums, uniform, index, SIZE: tl.constexpr):
    """The chunk that a uniform falls into, and how much of its sum lies below."""
    share = uniform * tl.sum(sums, axis=0)
    chunk = inverse(sums, share, index, SIZE)
    return chunk, share - tl.sum(tl.where(index < chunk, sums, 0.0), axis=0)
