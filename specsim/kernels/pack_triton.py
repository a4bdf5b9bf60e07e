"""The packing of a pass's tokens as one Triton kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specsim.kernels.launches import LAUNCHES
from specsim.kernels.pack import Packed, check_pack

MOST_PAIRS = 8192
"""Rows times requests that one program compares."""


def pack(
    history: torch.Tensor,
    slots: torch.Tensor,
    starts: torch.Tensor,
    counts: torch.Tensor,
    block_table: torch.Tensor,
    block_size: int,
    size: int,
    out: Packed | None = None,
) -> Packed:
    """What `specsim.kernels.pack.pack` defines, in one launch, without a wait: a CUDA graph can hold it.

    `out` must be contiguous, on the device of `counts`.
    """
    check_pack(history, slots, starts, counts, block_table, block_size, size, out)
    num_requests = counts.shape[0]
    if out is None:
        shapes = (size, size, size, num_requests + 1, num_requests)
        out = Packed(*(torch.empty(shape, dtype=torch.int64, device=counts.device) for shape in shapes))
    requests = triton.next_power_of_2(max(num_requests, 1))
    rows = max(16, min(128, MOST_PAIRS // requests))
    LAUNCHES["pack"] += 1
    _pack[(max(1, triton.cdiv(size, rows)),)](
        history,
        slots.contiguous(),
        starts.contiguous(),
        counts.contiguous(),
        block_table,
        out.tokens,
        out.positions,
        out.kv_index,
        out.query_start,
        out.context,
        num_requests,
        size,
        history.stride(0),
        history.stride(1),
        block_table.stride(0),
        block_table.stride(1),
        BLOCK_SIZE=block_size,
        REQUESTS=requests,
        ROWS=rows,
    )
    return out


@triton.jit(do_not_specialize=["num_requests", "size"])
def _pack(
    history,
    slots,
    starts,
    counts,
    block_table,
    tokens,
    positions,
    kv_index,
    query_start,
    context,
    num_requests,
    size,
    history_slot,
    history_position,
    table_slot,
    table_block,
    BLOCK_SIZE: tl.constexpr,
    REQUESTS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """A program fills ROWS rows; each adds up all counts itself, which is cheaper than a second launch."""
    each = tl.arange(0, REQUESTS)
    real = each < num_requests
    count = tl.load(counts + each, mask=real, other=0)
    ends = tl.cumsum(count, 0)
    total = tl.sum(count, 0)
    if tl.program_id(0) == 0:
        tl.store(query_start + each + 1, ends, mask=real)
        tl.store(query_start + each, tl.zeros_like(ends), mask=each == 0)
        tl.store(context + each, tl.load(starts + each, mask=real, other=0) + count, mask=real)

    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside, fed = row < size, row < total
    before = ends[None, :] <= row[:, None]  # requests there are not end where the last one does, as `fed` does
    request = tl.sum(before.to(tl.int32), 1)
    first = tl.max(tl.where(before, ends[None, :], 0), 1)
    slot = tl.load(slots + request, mask=fed, other=0)
    position = tl.load(starts + request, mask=fed, other=0) + row - first
    token = tl.load(history + slot * history_slot + position * history_position, mask=fed, other=0)
    block = tl.load(block_table + slot * table_slot + (position // BLOCK_SIZE) * table_block, mask=fed, other=0)
    index = block.to(tl.int64) * BLOCK_SIZE + position % BLOCK_SIZE
    tl.store(tokens + row, token, mask=inside)
    tl.store(positions + row, tl.where(fed, position, 0), mask=inside)
    tl.store(kv_index + row, tl.where(fed, index, row % BLOCK_SIZE), mask=inside)
