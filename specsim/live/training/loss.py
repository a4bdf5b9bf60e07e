"""What a step of training minimises, and how often the drafter was right."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specsim.live.drafters.block_net import BlockNet
from specsim.live.drafters.checkpoints import DrafterNet
from specsim.live.training.anchored import draft_hidden
from specsim.live.training.batches import AnchorBatch
from specsim.live.training.head_loss import head_loss

BLOCK_DECAY = math.exp(-1 / 7)
"""Weight of a block's draft k + 1 over that of draft k: a draft counts only if those before it are accepted."""

EAGLE_DECAY = 0.8
"""The same for an EAGLE head's unrolled steps."""


def drafter_loss(
    net: DrafterNet, batch: AnchorBatch, features: Tensor, embedding: Tensor, head: Tensor, depth: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean weighted cross-entropy of a batch.

    features         [B, T, F * h] of the batch's rows
    embedding, head  [V, h], the target's
    depth            drafts, K, as the batch was made for
    returns          the loss; [K] int64 right drafts and [K] int64 drafts learnt, by depth
    """
    hidden = draft_hidden(net, batch, features, embedding, depth)
    decay = BLOCK_DECAY if isinstance(net, BlockNet) else EAGLE_DECAY
    weights = decay ** batch.depths.float()
    total, hits = head_loss(hidden.flatten(0, 2)[batch.rows], head, batch.labels, weights)
    none = torch.zeros(depth, dtype=torch.int64, device=hits.device)  # not bincount: that waits for the device
    right = none.index_add(0, batch.depths, hits.long())
    return total / weights.sum(), right, none.index_add(0, batch.depths, torch.ones_like(batch.depths))
