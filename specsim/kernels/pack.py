"""The tokens of many requests, each fed a different number, laid end to end in one row.

Axes in shape brackets: R requests of the pass, N packed tokens, S slots, T token positions of a slot, M logical blocks.

Block 0 of the key and value pools is never handed to a request: rows that carry no token write there.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from array_api_compat import array_namespace

from specsim.core import Array
from specsim.errors import InputError


@dataclass(frozen=True, slots=True)
class Packed:
    """One forward pass over a token bucket. Behind row `query_start[R]` nothing is fed.

    tokens       [N] int64, token ids; 0 where nothing is fed
    positions    [N] int64, place of each token in its request; 0 where nothing is fed
    kv_index     [N] int64, where each token's keys and values go: block * block_size + place in the block. Rows that
                 feed nothing take turns through block 0, which is reserved for them
    query_start  [R + 1] int64, first row of each request, and behind them the number of tokens fed
    context      [R] int64, tokens in each request's cache once this pass has written its own
    """

    tokens: Array
    positions: Array
    kv_index: Array
    query_start: Array
    context: Array


def pack(
    history: Array,
    slots: Array,
    starts: Array,
    counts: Array,
    block_table: Array,
    block_size: int,
    size: int,
    out: Packed | None = None,
) -> Packed:
    """Lay the tokens to be fed end to end, with where each stands and where its keys and values go.

    Shapes depend on the arguments' shapes and on `size` alone, and nothing is read by the host.

    history      [S, T] int64, token ids of each slot, drafts behind the committed ones
    slots        [R] int64, row of `history` and of `block_table` of each request
    starts       [R] int64, first position fed
    counts       [R] int64, tokens fed, 0 allowed; their sum is at most `size`
    block_table  [S, M] int32 or int64, physical block of each logical block
    block_size   tokens in a block
    size         rows of the bucket, N
    out          arrays to write into (None: new ones)
    returns      `out`, or new arrays
    Raises       InputError for a block or a bucket without room, or arrays of the wrong shape
    """
    check_pack(history, slots, starts, counts, block_table, block_size, size, out)
    xp = array_namespace(history, slots, starts, counts, block_table)
    row = xp.arange(size, dtype=xp.int64, device=counts.device)
    query_start = xp.cumulative_sum(counts, dtype=xp.int64, include_initial=True)
    packed = Packed(
        tokens=xp.zeros_like(row),
        positions=xp.zeros_like(row),
        kv_index=row % block_size,
        query_start=query_start,
        context=starts + counts,
    )
    if counts.shape[0]:
        packed = _fill(packed, history, slots, starts, block_table, block_size, xp)
    if out is None:
        return packed
    for field in fields(Packed):
        getattr(out, field.name)[...] = getattr(packed, field.name)
    return out


def _fill(
    padding: Packed, history: Array, slots: Array, starts: Array, block_table: Array, block_size: int, xp: Any
) -> Packed:
    """The bucket of all padding, with the fed tokens in front."""
    query_start, last = padding.query_start, starts.shape[0] - 1
    row = xp.arange(padding.tokens.shape[0], dtype=xp.int64, device=query_start.device)
    fed = row < query_start[-1]
    request = xp.searchsorted(query_start[1:], row, side="right")
    request = xp.where(fed, request, last)
    position = xp.where(fed, xp.take(starts, request) + row - xp.take(query_start, request), 0)
    slot = xp.take(slots, request)
    # Behind the fed rows position 0 of the last request is looked up, and dropped.
    tokens = xp.take(xp.reshape(history, (-1,)), slot * history.shape[1] + position)
    blocks = xp.take(xp.reshape(block_table, (-1,)), slot * block_table.shape[1] + position // block_size)
    index = xp.astype(blocks, xp.int64) * block_size + position % block_size  # a large pool passes 2**31
    return Packed(
        tokens=xp.where(fed, tokens, 0),
        positions=position,
        kv_index=xp.where(fed, index, padding.kv_index),
        query_start=query_start,
        context=padding.context,
    )


def first_rows(packed: Packed) -> Array:
    """The row after each request's first fed token: its logits judge the request's first draft.

    packed   a pass's tokens
    returns  [R] int64, row of the logits; draft k is judged by k rows further. A request that was fed nothing has
             no row: what stands here for it is the next request's
    """
    return packed.query_start[:-1]


def check_pack(
    history: Array,
    slots: Array,
    starts: Array,
    counts: Array,
    block_table: Array,
    block_size: int,
    size: int,
    out: Packed | None,
) -> None:
    """Refuse arguments of `pack` that do not fit together, by shape alone.

    Raises   InputError
    """
    if block_size < 1 or size < 0:
        raise InputError(f"block_size {block_size}, size {size}: at least 1 and at least 0 are allowed")
    lengths = {slots.shape, starts.shape, counts.shape}
    if len(lengths) > 1 or len(slots.shape) != 1:
        raise InputError(f"slots, starts and counts {slots.shape}, {starts.shape}, {counts.shape}: one length [R]")
    if len(history.shape) != 2 or len(block_table.shape) != 2 or history.shape[0] != block_table.shape[0]:
        raise InputError(f"history {history.shape} and block_table {block_table.shape}: [S, T] and [S, M] are allowed")
    if out is not None:
        rows, requests = (size,), counts.shape[0]
        allowed = Packed(rows, rows, rows, (requests + 1,), (requests,))
        for field in fields(Packed):
            given, wanted = getattr(out, field.name).shape, getattr(allowed, field.name)
            if tuple(given) != wanted:
                raise InputError(f"out.{field.name} {tuple(given)}: {wanted} is allowed")
