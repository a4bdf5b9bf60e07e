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

    places  [R * length] int64, where each position's keys and values lie. Behind a request's context its first position
            is read once more: a mask alone would not do, since what lies there may be NaN, and 0 times NaN is NaN
    index   [R * width] int64, row of each token; padding repeats a row of its request (None: all rows, in order)
    real    [K] int64, which of these are tokens, and `rows` [K] int64, where their outputs go
    mask    [R, 1, width, length] bool, what each token sees
    masks   the same by query heads of a KV head, made when first needed
    """

    places: torch.Tensor
    index: torch.Tensor | None
    real: torch.Tensor
    rows: torch.Tensor
    mask: torch.Tensor
    masks: dict[int, torch.Tensor]

    def seen_by(self, share: int) -> torch.Tensor:
        """[R, 1, share * width, length] bool, what the queries of one KV head see."""
        if share not in self.masks:
            self.masks[share] = self.mask.repeat(1, 1, share, 1)
        return self.masks[share]


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
    step, column = torch.arange(width), torch.arange(length)
    real = step < counts[:, None]
    index = torch.where(real, start[:, None] + step, start[:, None]).reshape(-1)
    position = context[:, None] - counts[:, None] + step  # of padding too: it must see something
    if whole:
        position = (context[:, None] - 1).expand_as(position)
    read = torch.where(column < context[:, None], column, 0)
    flat = torch.nonzero(real.reshape(-1))[:, 0]
    alone = len(flat) == len(packed.tokens) == len(index)
    return Together(
        places=(table[rows].gather(1, read // block_size) * block_size + read % block_size).reshape(-1),
        index=None if alone else index,
        real=flat,
        rows=index[flat],
        mask=(column <= position[:, :, None])[:, None],
        masks={},
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
    if len(groups) == 1 and groups[0].index is None:
        return _attend_together(query, key_pool, value_pool, groups[0], scale)
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
    num, _, width, length = group.mask.shape
    keys, values = (
        pool.view(-1, kv_heads * dim).index_select(0, group.places).view(num, length, kv_heads, dim).transpose(1, 2)
        for pool in (key_pool, value_pool)
    )
    # Query heads that share a KV head stand beside each other as further queries: nothing is repeated in memory.
    share = query.shape[1] // kv_heads
    wanted = query if group.index is None else query.index_select(0, group.index)
    grouped = wanted.reshape(num, width, kv_heads, share, dim).permute(0, 2, 3, 1, 4)
    grouped = grouped.reshape(num, kv_heads, share * width, dim)
    attended = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=group.seen_by(share), scale=scale)
    attended = attended.view(num, kv_heads, share, width, dim).permute(0, 3, 1, 2, 4)
    return attended.reshape(num * width, kv_heads * share, dim)
