"""`attention.store_kv` in Triton: one launch for both pools."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specsim.kernels.attention import check_store
from specsim.kernels.attention_triton import row_offset
from specsim.kernels.launches import LAUNCHES


def store_kv(
    key: torch.Tensor, value: torch.Tensor, key_pool: torch.Tensor, value_pool: torch.Tensor, kv_index: torch.Tensor
) -> None:
    """What `specsim.kernels.attention.store_kv` defines, both pools in one launch."""
    check_store(key, value, key_pool, value_pool, kv_index)
    num_tokens, num_kv_heads, head_dim = key.shape
    if not num_tokens:
        return
    LAUNCHES["store_kv"] += 1
    _store[(num_tokens,)](
        key,
        value,
        key_pool,
        value_pool,
        kv_index.contiguous(),
        *key.stride(),
        *value.stride(),
        *key_pool.stride(),
        *value_pool.stride(),
        KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=key_pool.shape[1],
        BLOCK_H=triton.next_power_of_2(num_kv_heads),
        BLOCK_D=triton.next_power_of_2(head_dim),
    )


@triton.jit
def _store(
    key,
    value,
    key_pool,
    value_pool,
    kv_index,
    key_row,
    key_head,
    key_dim,
    value_row,
    value_head,
    value_dim,
    key_pool_block,
    key_pool_place,
    key_pool_head,
    key_pool_dim,
    value_pool_block,
    value_pool_place,
    value_pool_head,
    value_pool_dim,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One token's keys and values into their places."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, BLOCK_H)[:, None].to(tl.int64)
    dim = tl.arange(0, BLOCK_D)[None, :]
    inside = (head < KV_HEADS) & (dim < HEAD_DIM)
    index = tl.load(kv_index + row)
    block, place = index // BLOCK_SIZE, index % BLOCK_SIZE
    keys = tl.load(key + row * key_row + head * key_head + dim * key_dim, mask=inside)
    values = tl.load(value + row * value_row + head * value_head + dim * value_dim, mask=inside)
    key_at = row_offset(block, place, key_pool_block, key_pool_place) + head * key_pool_head + dim * key_pool_dim
    value_at = row_offset(block, place, value_pool_block, value_pool_place)
    value_at += head * value_pool_head + dim * value_pool_dim
    tl.store(key_pool + key_at, keys, mask=inside)
    tl.store(value_pool + value_at, values, mask=inside)
