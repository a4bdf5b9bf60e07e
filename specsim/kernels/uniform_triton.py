"""Uniform numbers of a counter, in Triton: the same bits as `kernels.uniform`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specsim.errors import InputError
from specsim.kernels.launches import LAUNCHES

BLOCK = 256


@triton.jit
def uniform_at(seed, position, stream):
    """float32 in [0, 1): see `kernels.uniform.uniform`. seed and position are int64 blocks of one shape."""
    low = (position & 0xFFFFFFFF).to(tl.uint32)
    high = ((position >> 32) & 0xFFFFFFFF).to(tl.uint32)
    word, _, _, _ = tl.philox(seed, low, high, low * 0 + stream, low * 0)
    return (word >> 8).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def _uniform(seed_ptr, position_ptr, out_ptr, size, stream, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    seed = tl.load(seed_ptr + index, mask=inside, other=0)
    position = tl.load(position_ptr + index, mask=inside, other=0)
    tl.store(out_ptr + index, uniform_at(seed, position, stream), mask=inside)


def uniform(seed: torch.Tensor, position: torch.Tensor, stream: int) -> torch.Tensor:
    """float32 of the broadcast shape: see `kernels.uniform.uniform`."""
    for name, value in (("seed", seed), ("position", position)):
        if value.dtype != torch.int64:
            raise InputError(f"{name} is {value.dtype}: allowed is torch.int64")
    seed, position = (values.contiguous() for values in torch.broadcast_tensors(seed, position))
    out = torch.empty(seed.shape, dtype=torch.float32, device=seed.device)
    if out.numel():
        LAUNCHES["uniform"] += 1
        _uniform[(triton.cdiv(out.numel(), BLOCK),)](seed, position, out, out.numel(), stream, BLOCK=BLOCK)
    return out
