"""Ragged paged attention on a CPU: few large operations, since each call costs more than its numbers there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from specsim.kernels.pack import Packed

NARROW = 32
"""Requests with at most this many tokens in a pass attend together, padded to the longest; others one by one."""


def store_kv(
    key: torch.Tensor, value: torch.Tensor, key_pool: torch.Tensor, value_pool: torch.Tensor, kv_index: torch.Tensor
) -> None:
    """Write a pass's keys and values, [N, Hkv, d], to their places in the pools."""
    key_pool.view(-1, *key_pool.shape[2:]).index_copy_(0, kv_index, key)
    value_pool.view(-1, *value_pool.shape[2:]).index_copy_(0, kv_index, value)


@dataclass(frozen=True, slots=True)
class Together:
    """Requests that attend in one call, padded to the most tokens and the longest context among them.

    blocks  [R * m] int64, blocks of each, as many as the longest context needs
    index   [R * width] int64, row of each token; padding repeats a row of its request
    real    [K] int64, which of these are tokens, and `rows` [K] int64, where their outputs go
    mask    [R, 1, width, length] bool, what each token sees
    unread  [R, length, 1, 1] bool, places behind each context (None: all contexts are equally long)
    width   most tokens of a request
    length  longest context
    """

    blocks: torch.Tensor
    index: torch.Tensor
    real: torch.Tensor
    rows: torch.Tensor
    mask: torch.Tensor
    unread: torch.Tensor | None
    width: int
    length: int


def prepare(packed: Packed, table: torch.Tensor, block_size: int, whole: bool = False) -> tuple[Together, ...]:
    """What all layers of a pass share.

    table   [R, M] int64, blocks of each request
    whole   whether a token sees all its request's positions, those behind it too, instead of those up to its own
    """
    counts = packed.query_start.diff()
    narrow = torch.nonzero((counts > 0) & (counts <= NARROW))[:, 0]
    groups = [narrow] if len(narrow) else []
    groups.extend(row[None] for row in torch.nonzero(counts > NARROW)[:, 0])
    return tuple(_together(packed, table, block_size, rows, whole) for rows in groups)


def _together(packed: Packed, table: torch.Tensor, block_size: int, rows: torch.Tensor, whole: bool) -> Together:
    start = packed.query_start[rows]
    counts = packed.query_start[rows + 1] - start
    context = packed.context[rows]
    width, length = int(counts.max()), int(context.max())
    step = torch.arange(width)
    real = step < counts[:, None]
    index = torch.where(real, start[:, None] + step, start[:, None])
    position = context[:, None] - counts[:, None] + step  # of padding too: it must see something
    if whole:
        position = (context[:, None] - 1).expand_as(position)
    mask = torch.arange(length) <= position[:, :, None]
    flat = torch.nonzero(real.reshape(-1))[:, 0]
    return Together(
        blocks=table[rows, : -(-length // block_size)].reshape(-1),
        index=index.reshape(-1),
        real=flat,
        rows=index.reshape(-1)[flat],
        mask=mask[:, None],
        unread=None if int(context.min()) == length else (torch.arange(length) >= context[:, None])[:, :, None, None],
        width=width,
        length=length,
    )


def attend(
    query: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    groups: tuple[Together, ...],
    scale: float,
) -> torch.Tensor:
    """See `kernels.attention.ragged_paged_attention`, which defines it.

    query   [N, Hq, d]
    groups  see `prepare`
    """
    out = torch.zeros_like(query, memory_format=torch.contiguous_format)
    for group in groups:
        attended = _attend_together(query, key_pool, value_pool, group, scale)
        out.index_copy_(0, group.rows, attended.index_select(0, group.real))
    return out


def _attend_together(
    query: torch.Tensor, key_pool: torch.Tensor, value_pool: torch.Tensor, group: Together, scale: float
) -> torch.Tensor:
    """[R * width, Hq, d], attention of some requests."""
    kv_heads, dim = key_pool.shape[2:]
    num, width, length = group.mask.shape[0], group.width, group.length
    keys, values = (
        pool.index_select(0, group.blocks).view(num, -1, kv_heads, dim)[:, :length] for pool in (key_pool, value_pool)
    )
    if group.unread is not None:  # a mask alone would not do: what lies there may be NaN, and 0 times NaN is NaN
        keys, values = keys.masked_fill_(group.unread, 0.0), values.masked_fill_(group.unread, 0.0)
    keys, values = keys.transpose(1, 2), values.transpose(1, 2)
    # Query heads that share a KV head stand beside each other as further queries: nothing is repeated in memory.
    share = query.shape[1] // kv_heads
    grouped = query.index_select(0, group.index).view(num, width, kv_heads, share, dim).permute(0, 2, 3, 1, 4)
    grouped = grouped.reshape(num, kv_heads, share * width, dim)
    mask = group.mask if share == 1 else group.mask.repeat(1, 1, share, 1)
    attended = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask, scale=scale)
    attended = attended.view(num, kv_heads, share, width, dim).permute(0, 3, 1, 2, 4)
    return attended.reshape(num * width, kv_heads * share, dim)
