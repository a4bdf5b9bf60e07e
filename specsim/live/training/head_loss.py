"""Cross-entropy through a frozen LM head, without ever holding all logits.

The gradient with respect to the hidden states is computed along with the loss, chunk by chunk: a vocabulary of 50,000
times the 60,000 drafts of a step would take 6 GB for the logits alone, and several times that for what autograd keeps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 8192
"""Drafts whose logits are held at once."""


def head_loss(hidden: Tensor, head: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted sum of cross-entropies.

    hidden   [M, h], gradients flow to it
    head     [V, h], frozen
    labels   [M] int64
    weights  [M] float32
    returns  the sum, float32 scalar, and [M] bool: whether the label is the most likely token (no gradient)
    """
    return _HeadLoss.apply(hidden, head, labels, weights)


def gradient_in_place(logits: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Losses [n] and hits [n] of logits [n, V], which are overwritten by the gradient of the weighted sum."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    picked = wide.gather(1, labels[:, None])[:, 0]
    hits = picked >= wide.amax(-1)
    log_total = wide.logsumexp(-1)
    share = (wide - log_total[:, None]).exp_()
    share[torch.arange(len(labels), device=labels.device), labels] -= 1
    logits.copy_(share * weights[:, None])
    return log_total - picked, hits


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        step = gradient_in_place
        if hidden.is_cuda:
            from specsim.live.training.head_loss_triton import gradient_in_place as step
        gradient, losses, hits = torch.empty_like(hidden), [], []
        # The head's own precision decides: hidden states are cast to it, as they are when drafting.
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, len(hidden), CHUNK):
                part = slice(start, start + CHUNK)
                logits = hidden[part].to(head.dtype) @ head.T
                loss, hit = step(logits, labels[part], weights[part])
                gradient[part] = (logits @ head).to(hidden.dtype)
                losses.append((loss * weights[part]).sum())
                hits.append(hit)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(found := torch.cat(hits) if hits else labels.bool())
        return torch.stack(losses).sum() if losses else hidden.new_zeros(()), found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0].to(gradient.dtype), None, None, None
