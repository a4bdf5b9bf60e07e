"""Uniform numbers of a counter: a request's randomness is a function of its seed and its position alone."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from specsim.core import Array

ACCEPT, TARGET, DRAFT = 0, 1, 2
"""Streams: accept tests, tokens drawn from the target (recovered and bonus tokens too), tokens drawn by a drafter."""

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORD = 0xFFFFFFFF
BITS = 24
"""Of a word's 32 bits as many as a float32 holds exactly."""


def uniform(seed: Array, position: Array, stream: int) -> Array:
    """One number in [0, 1) for each seed and position: the same bits on every library and device.

    seed      int64, of any shape; the key
    position  int64, a shape that broadcasts with `seed`'s; output position of a request, from 0
    stream    `ACCEPT`, `TARGET` or `DRAFT`: numbers of different use are independent
    returns   float32, a multiple of 2^-24 in [0, 1)

    Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011), Philox-4x32-10; the counter is
    (position's low word, its high word, stream, 0), and the number is the top 24 bits of the first word.
    """
    xp = array_namespace(seed, position)
    seed, position = xp.broadcast_arrays(seed, position)
    streams = xp.full_like(position, stream)
    counter = (position & WORD, (position >> 32) & WORD, streams, xp.zeros_like(position))
    word = philox(counter, (seed & WORD, (seed >> 32) & WORD))[0]
    return xp.astype(word >> (32 - BITS), xp.float32) * 2.0**-BITS


def philox(counter: tuple[Array, ...], key: tuple[Array, ...]) -> tuple[Array, ...]:
    """Philox-4x32-10.

    counter  4 int64 arrays of one shape, each in [0, 2^32)
    key      2 of the same
    returns  4 of the same: random words

    Source: Salmon et al. (SC 2011), section 4.3; constants of Random123.
    """
    first, second, third, fourth = counter
    low, high = key
    for _ in range(ROUNDS):
        upper_first, lower_first = _multiply(first, MULTIPLIERS[0])
        upper_third, lower_third = _multiply(third, MULTIPLIERS[1])
        first, second = upper_third ^ second ^ low, lower_third
        third, fourth = upper_first ^ fourth ^ high, lower_first
        low, high = (low + KEY_STEPS[0]) & WORD, (high + KEY_STEPS[1]) & WORD
    return first, second, third, fourth


def _multiply(word: Array, multiplier: int) -> tuple[Any, Any]:
    """Upper and lower word of a product of 64 unsigned bits, in halves that int64 holds: all are below 2^49."""
    by_upper, by_lower = word * (multiplier >> 16), word * (multiplier & 0xFFFF)
    return (by_upper + (by_lower >> 16)) >> 16, (((by_upper & 0xFFFF) << 16) + by_lower) & WORD
