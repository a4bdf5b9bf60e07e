"""Ragged attention over a paged cache as Triton kernels, for GPUs of the Hopper kind.

A program takes a tile of one request's queries with all query heads of one key head, and walks over that request's
keys once. The grid follows from shapes alone, so a CUDA graph can hold a call: a program finds its request from
`query_start` on the device, and programs that find none end at once. Where tiles are too few to fill the GPU, each
request's keys are split among programs, and a second kernel puts their parts together.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from specsim.errors import InputError
from specsim.kernels.attention import check_attention
from specsim.kernels.launches import LAUNCHES

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LARGEST_HEAD = 256
LEAST_BLOCK = 16
LOG2_E = 1.4426950408889634

PROGRAMS_PER_MULTIPROCESSOR = 2
"""Programs that must be there before splitting keys further is not worth a second kernel."""

LEAST_SPLIT_KEYS = 128
"""Keys that a program should at least walk over."""

MOST_SPLITS = 64


class Tile(NamedTuple):
    """What one program holds.

    rows      query rows of a tile, tokens times heads, a power of two of at least 16
    tokens    tokens of one request in a tile
    keys      keys taken at a time, a power of two
    warps     warps of a program
    stages    loads in flight
    """

    rows: int
    tokens: int
    keys: int
    warps: int
    stages: int


def ragged_paged_attention(
    query: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    block_table: torch.Tensor,
    query_start: torch.Tensor,
    context: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """What `specsim.kernels.attention.ragged_paged_attention` defines, for float16, bfloat16 and float32.

    Nothing is read by the host and every size follows from shapes. A key that is not a number spoils the queries of
    its own request that share a tile with one that sees it, and no other request's.

    Raises   InputError also for other dtypes, heads above 256 and blocks that are no power of two of at least 16
    """
    check_attention(query, key_pool, value_pool, block_table, query_start, context)
    _check(query, key_pool, value_pool)
    num_tokens, num_heads, head_dim = query.shape
    num_requests, num_kv_heads = context.shape[0], key_pool.shape[2]
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    if not num_tokens:
        return out
    if not num_requests:
        return out.zero_()
    group = num_heads // num_kv_heads
    tile = tile_of(num_tokens, num_requests, group, head_dim, query.element_size())
    splits = num_splits(
        num_tokens // tile.tokens + num_requests,
        num_kv_heads,
        block_table.shape[1] * key_pool.shape[1],
        _multiprocessors(query.device),
    )
    part, part_max, part_sum = out, out, out
    if splits > 1:
        part = torch.empty((splits, *query.shape), dtype=torch.float32, device=query.device)
        part_max, part_sum = torch.empty((2, splits, num_tokens, num_heads), dtype=torch.float32, device=query.device)
    LAUNCHES["ragged_paged_attention"] += 1
    # The rows behind the fed ones are tiles of one more request, which has no keys.
    tiles = (num_tokens - 1) // tile.tokens + num_requests + 1
    requests = triton.next_power_of_2(num_requests + 1)
    block_d = max(16, triton.next_power_of_2(head_dim))
    _attend[(tiles * num_kv_heads, splits)](
        query,
        key_pool,
        value_pool,
        block_table,
        query_start.contiguous(),
        context.contiguous(),
        part,
        part_max,
        part_sum,
        scale * LOG2_E,
        num_tokens,
        num_requests,
        *query.stride(),
        *key_pool.stride(),
        *value_pool.stride(),
        *block_table.stride(),
        KV_HEADS=num_kv_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        BLOCK_D=block_d,
        BLOCK_SIZE=key_pool.shape[1],
        REQUESTS=requests,
        ROWS=tile.rows,
        TOKENS=tile.tokens,
        KEYS=tile.keys,
        SPLITS=splits,
        DOT=_dot_dtype(query),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    if splits > 1:
        _combine[(num_tokens, num_heads)](
            part,
            part_max,
            part_sum,
            query_start,
            out,
            num_tokens,
            query_start.stride(0) * num_requests,
            HEADS=num_heads,
            HEAD_DIM=head_dim,
            BLOCK_D=block_d,
            SPLITS=splits,
        )
    return out


def tile_of(num_tokens: int, num_requests: int, group: int, head_dim: int, itemsize: int) -> Tile:
    """The tile for a pass of this shape: as many query rows as an average request has, and what the chip can hold.

    num_tokens     rows of the bucket, N
    num_requests   requests of the pass, R, at least 1
    group          query heads of a key head
    head_dim       numbers of a head, d
    itemsize       bytes of a number
    """
    wide = triton.next_power_of_2(head_dim)
    if itemsize == 4:  # products in full float32 need no tensor core and many registers
        most, keys = (32, 32) if wide <= 128 else (16, 16)
    else:
        most, keys = (128, 64) if wide <= 128 else (64, 32)
    wanted = triton.cdiv(num_tokens, num_requests) * group
    rows = triton.next_power_of_2(max(16, min(wanted, most), group))
    warps = 8 if rows * max(wide, 128) >= 128 * 128 else 4
    return Tile(rows, rows // group, keys, warps, stages=2 if itemsize == 4 else 3)


def num_splits(num_tiles: int, num_kv_heads: int, most_keys: int, multiprocessors: int) -> int:
    """Programs that share each request's keys, a power of two: as many as it takes to keep the GPU busy.

    num_tiles         tiles of queries, at most
    num_kv_heads      key heads, Hkv
    most_keys         keys that a request can have at most
    multiprocessors   multiprocessors of the GPU
    """
    wanted = PROGRAMS_PER_MULTIPROCESSOR * multiprocessors // (num_tiles * num_kv_heads)
    useful = most_keys // LEAST_SPLIT_KEYS
    return 1 << (max(1, min(wanted, useful, MOST_SPLITS)).bit_length() - 1)


def _check(query: torch.Tensor, key_pool: torch.Tensor, value_pool: torch.Tensor) -> None:
    """Refuse what the kernels cannot do."""
    dtypes = {query.dtype, key_pool.dtype, value_pool.dtype}
    if len(dtypes) > 1 or query.dtype not in DTYPES:
        found = ", ".join(sorted(map(str, dtypes)))
        raise InputError(f"attention kernel on {found}: one of float16, bfloat16, float32 is allowed")
    if query.shape[2] > LARGEST_HEAD:
        raise InputError(f"attention kernel on heads of {query.shape[2]}: at most {LARGEST_HEAD} is allowed")
    block_size = key_pool.shape[1]
    if block_size < LEAST_BLOCK or block_size & (block_size - 1):
        raise InputError(
            f"attention kernel on blocks of {block_size}: a power of two of at least {LEAST_BLOCK} is allowed"
        )


@cache
def _multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a GPU; Triton's interpreter has one."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _dot_dtype(query: torch.Tensor) -> tl.dtype:
    """What products are taken in: the arrays' own dtype. The interpreter has no product of bfloat16."""
    if query.device.type != "cuda" or query.dtype == torch.float32:
        return tl.float32
    return tl.float16 if query.dtype == torch.float16 else tl.bfloat16


@triton.jit
def row_offset(block, place, block_stride, place_stride):
    """Where a token's keys begin in a pool, in int64: a pool of many blocks holds more than 2**31 numbers."""
    return block.to(tl.int64) * block_stride + place.to(tl.int64) * place_stride


@triton.jit(do_not_specialize=["scale", "num_tokens", "num_requests"])
def _attend(
    query,
    key_pool,
    value_pool,
    block_table,
    query_start,
    context,
    part,
    part_max,
    part_sum,
    scale,
    num_tokens,
    num_requests,
    query_row,
    query_head,
    query_dim,
    key_block,
    key_place,
    key_head,
    key_dim,
    value_block,
    value_place,
    value_head,
    value_dim,
    table_request,
    table_block,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    REQUESTS: tl.constexpr,
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
    KEYS: tl.constexpr,
    SPLITS: tl.constexpr,
    DOT: tl.constexpr,
):
    """One tile of queries, one key head, one share of the keys. `part` is the output itself where SPLITS is 1."""
    tile = tl.program_id(0) // KV_HEADS
    kv_head = tl.program_id(0) % KV_HEADS
    split = tl.program_id(1)
    dim = tl.arange(0, BLOCK_D)
    row = tl.arange(0, ROWS)

    # Request r owns the tiles from query_start[r] // TOKENS + r on: enough for any counts before it.
    each = tl.arange(0, REQUESTS)
    first_tile = tl.load(query_start + each, mask=each <= num_requests, other=0) // TOKENS + each
    request = tl.sum(((first_tile <= tile) & (each <= num_requests)).to(tl.int32), 0) - 1
    first = tl.load(query_start + request)
    after = tl.load(query_start + request + 1, mask=request < num_requests, other=num_tokens)
    count = (after - first).to(tl.int32)
    offset = (tile - first // TOKENS - request).to(tl.int32) * TOKENS
    if offset >= count:
        return

    token = offset + row // GROUP
    head = (kv_head * GROUP + row % GROUP).to(tl.int64)
    live = (row // GROUP < TOKENS) & (token < count)
    token_row = first + token
    inside = live[:, None] & (dim < HEAD_DIM)[None, :]
    out_row = (token_row * (KV_HEADS * GROUP) + head)[:, None] * HEAD_DIM + dim[None, :]
    if request == num_requests:
        if SPLITS == 1:
            tl.store(part + out_row, tl.zeros([ROWS, BLOCK_D], tl.float32).to(part.dtype.element_ty), mask=inside)
        return

    length = tl.load(context + request).to(tl.int32)
    position = tl.where(live, length - count + token, -1)
    end = length - count + tl.minimum(offset + TOKENS, count)
    begin = 0
    if SPLITS > 1:
        share = ((end + SPLITS * KEYS - 1) // (SPLITS * KEYS)) * KEYS
        begin = split * share
        end = tl.minimum(begin + share, end)

    query_at = query + (token_row * query_row + head * query_head)[:, None] + dim[None, :] * query_dim
    queries = tl.load(query_at, mask=inside, other=0.0).to(DOT)
    table = block_table + request.to(tl.int64) * table_request
    key_at = key_pool + kv_head.to(tl.int64) * key_head + dim[None, :] * key_dim
    value_at = value_pool + kv_head.to(tl.int64) * value_head + dim[None, :] * value_dim
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, BLOCK_D], tl.float32)
    for start in range(begin, end, KEYS):
        key_position = start + tl.arange(0, KEYS)
        there = key_position < end
        loaded = there[:, None] & (dim < HEAD_DIM)[None, :]
        block = tl.load(table + (key_position // BLOCK_SIZE) * table_block, mask=there, other=0)
        place = key_position % BLOCK_SIZE
        keys = tl.load(key_at + row_offset(block, place, key_block, key_place)[:, None], mask=loaded, other=0.0)
        values = tl.load(value_at + row_offset(block, place, value_block, value_place)[:, None], mask=loaded, other=0.0)
        scores = tl.dot(queries, tl.trans(keys.to(DOT)), input_precision="ieee") * scale
        seen = (key_position[None, :] <= position[:, None]) & there[None, :]
        scores = tl.where(seen, scores, float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, 1))
        # A row that has seen no key yet has nothing to scale, and -inf - -inf is not a number.
        base = tl.where(larger == float("-inf"), 0.0, larger)
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(largest - base)
        total = total * shrink + tl.sum(weights, 1)
        weights = weights.to(value_pool.dtype.element_ty).to(DOT)
        mixed = tl.dot(weights, values.to(DOT), mixed * shrink[:, None], input_precision="ieee")
        largest = larger

    if SPLITS == 1:
        tl.store(part + out_row, (mixed / tl.where(live, total, 1.0)[:, None]).to(part.dtype.element_ty), mask=inside)
    else:
        slab = split.to(tl.int64) * num_tokens * (KV_HEADS * GROUP)
        scalar = slab + token_row * (KV_HEADS * GROUP) + head
        tl.store(part_max + scalar, largest, mask=live)
        tl.store(part_sum + scalar, total, mask=live)
        if begin < end:
            tl.store(part + slab * HEAD_DIM + out_row, mixed, mask=inside)


@triton.jit(do_not_specialize=["num_tokens", "last"])
def _combine(
    part,
    part_max,
    part_sum,
    query_start,
    out,
    num_tokens,
    last,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Put the shares of one query head together; rows behind the fed ones get zeros and no share is read."""
    row = tl.program_id(0).to(tl.int64)
    dim = tl.arange(0, BLOCK_D)
    split = tl.arange(0, SPLITS)
    fed = row < tl.load(query_start + last)
    scalar = (split.to(tl.int64) * num_tokens + row) * HEADS + tl.program_id(1)
    shares = tl.where(fed, SPLITS, 0)
    largest = tl.load(part_max + scalar, mask=split < shares, other=float("-inf"))
    total = tl.load(part_sum + scalar, mask=split < shares, other=0.0)
    top = tl.max(largest, 0)
    weight = tl.exp2(largest - tl.where(top == float("-inf"), 0.0, top))
    # A share without keys has no weight, and nothing was written of it.
    inside = (weight > 0)[:, None] & (dim < HEAD_DIM)[None, :]
    mixed = tl.load(part + scalar[:, None] * HEAD_DIM + dim[None, :], mask=inside, other=0.0)
    mixed = tl.sum(mixed * weight[:, None], 0) / tl.where(fed, tl.sum(total * weight, 0), 1.0)
    where = (row * HEADS + tl.program_id(1)) * HEAD_DIM + dim
    tl.store(out + where, mixed.to(out.dtype.element_ty), mask=dim < HEAD_DIM)
