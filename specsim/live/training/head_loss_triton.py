"""`head_loss.gradient_in_place` in Triton: logits are read twice and written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit
def _gradient(logits_ptr, label_ptr, weight_ptr, loss_ptr, hit_ptr, stride, vocab, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program a row."""
    row = tl.program_id(0).to(tl.int64)
    base = logits_ptr + row * stride
    label = tl.load(label_ptr + row)
    weight = tl.load(weight_ptr + row)
    # Read before the reductions, which all warps wait for: behind them another warp may have overwritten it.
    picked = tl.load(base + label).to(tl.float32)
    columns = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, vocab, BLOCK):
        at = start + columns
        values = tl.load(base + at, mask=at < vocab, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, values)
        # A lane that has seen no token yet has no maximum: -inf less -inf is no number.
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - shift) + tl.exp(values - shift)
        top = higher
    peak = tl.max(top, 0)
    total_sum = tl.sum(total * tl.exp(top - peak), 0)
    log_total = peak + tl.log(total_sum)
    tl.store(loss_ptr + row, log_total - picked)
    tl.store(hit_ptr + row, (picked >= peak).to(tl.int8))
    for start in range(0, vocab, BLOCK):
        at = start + columns
        values = tl.load(base + at, mask=at < vocab, other=float("-inf")).to(tl.float32)
        share = tl.exp(values - log_total) - tl.where(at == label, 1.0, 0.0)
        tl.store(base + at, share * weight, mask=at < vocab)


def gradient_in_place(logits: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """See `head_loss.gradient_in_place`; logits are contiguous along the vocabulary."""
    rows, vocab = logits.shape
    losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
    hits = torch.empty(rows, dtype=torch.int8, device=logits.device)
    if rows:
        weights, labels = weights.float().contiguous(), labels.contiguous()
        block = min(BLOCK, triton.next_power_of_2(vocab))
        _gradient[(rows,)](logits, labels, weights, losses, hits, logits.stride(0), vocab, BLOCK=block, num_warps=8)
    return losses, hits.bool()
