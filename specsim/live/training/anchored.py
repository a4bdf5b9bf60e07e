"""Drafters at many anchors of a sequence at once: what training and evaluation run.

The weights and arithmetic are those of the nets; here is only what each anchor's drafts see: the context before the
anchor, shared by the anchors of a row, and their own tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specsim.live.drafters.block_net import BlockNet
from specsim.live.drafters.checkpoints import DrafterNet
from specsim.live.drafters.eagle_net import EagleNet
from specsim.live.training.batches import AnchorBatch


def draft_hidden(net: DrafterNet, batch: AnchorBatch, features: Tensor, embedding: Tensor, depth: int) -> Tensor:
    """What the LM head takes, for each draft of each anchor.

    features   [B, T, F * h], the target's states of the batch's rows
    embedding  [V, h], the target's
    depth      drafts, K
    returns    [B, A, K, h]
    """
    if isinstance(net, BlockNet):
        return _block_hidden(net, batch, features, embedding, depth)
    return _eagle_hidden(net, batch, features, embedding, depth)


def _block_hidden(net: BlockNet, batch: AnchorBatch, features: Tensor, embedding: Tensor, depth: int) -> Tensor:
    """All places of every block in one pass."""
    steps = torch.arange(features.shape[1], device=features.device)
    kept = net.context_key_value(net.context(features), steps)
    seen = steps < batch.anchors[..., None]  # [B, A, T]
    block = net.block_tokens(batch.fed[..., 0])[..., : depth + 1]
    positions = batch.anchors[..., None] + torch.arange(depth + 1, device=features.device)

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend_anchored(query, *kept[layer], seen, key, value)

    return net(torch.nn.functional.embedding(block, embedding), positions, attend)[:, :, 1:]


def _eagle_hidden(net: EagleNet, batch: AnchorBatch, features: Tensor, embedding: Tensor, depth: int) -> Tensor:
    """Draft after draft, each fed the row's own token and the head's own last state."""
    fused = net.fuse(features)
    after = batch.tokens.roll(-1, 1)  # of no use at a row's last position, which no anchor sees
    context = _eagle_context(net, fused, net.embed(after, embedding))
    before = batch.anchors - 1
    seen = torch.arange(features.shape[1], device=features.device) < batch.anchors[..., None]
    hidden = fused.gather(1, before[..., None].expand(-1, -1, fused.shape[-1]))
    own: list[list[tuple[Tensor, Tensor]]] = [[] for _ in context]

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if step > 0:  # the first draft's position is in the context: its features are the target's
            own[layer].append((key, value))
        keys, values = (torch.stack(parts, 2) for parts in zip(*own[layer], strict=True)) if step else (None, None)
        return attend_anchored(query[:, :, None], *context[layer], seen, keys, values)[:, :, 0]

    drafts = []
    for step in range(depth):
        normed, hidden = net(net.embed(batch.fed[..., step], embedding), hidden, before + step, attend)
        drafts.append(normed)
    return torch.stack(drafts, 2)


def _eagle_context(net: EagleNet, fused: Tensor, embeds: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of all context positions, by layer."""
    steps = torch.arange(fused.shape[1], device=fused.device)
    if len(net.layers) == 1:
        return [net.first_key_value(embeds, fused, steps)]
    kept: list[tuple[Tensor, Tensor]] = []

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        kept.append((key, value))
        q, k, v = (states.to(value.dtype).transpose(-2, -3) for states in (query, key, value))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(-2, -3)

    net(embeds, fused, steps, attend)
    return kept


def attend_anchored(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor,
    own_key: Tensor | None,
    own_value: Tensor | None,
) -> Tensor:
    """Attention of each anchor's tokens to what they see of the row's context, and to all of their own.

    query                [B, A, S, Hq, d]
    key, value           [B, T, Hkv, d], the context of each row
    seen                 [B, A, T] bool, which of it an anchor sees
    own_key, own_value   [B, A, J, Hkv, d] (None: there are none)
    returns              [B, A, S, Hq, d]
    """
    batch, anchors, size, heads, width = query.shape
    kv_heads, dtype = key.shape[-2], value.dtype
    with torch.autocast(query.device.type, enabled=False):  # its softmax would write float32 scores to memory
        grouped = query.to(dtype).unflatten(3, (kv_heads, -1)) * width**-0.5  # [B, A, S, Hkv, G, d]
        by_row = grouped.permute(0, 3, 4, 1, 2, 5).flatten(2, 4)  # [B, Hkv, G * A * S, d]
        scores = (by_row @ key.to(dtype).permute(0, 2, 3, 1)).unflatten(2, (-1, anchors, size))
        scores = scores.masked_fill(~seen[:, None, None, :, None], float("-inf"))  # [B, Hkv, G, A, S, T]
        count = scores.shape[-1]
        if own_key is not None and own_value is not None:
            by_anchor = grouped.permute(0, 1, 3, 4, 2, 5).flatten(3, 4)  # [B, A, Hkv, G * S, d]
            own = (by_anchor @ own_key.to(dtype).permute(0, 1, 3, 4, 2)).unflatten(3, (-1, size))
            scores = torch.cat((scores, own.permute(0, 2, 3, 1, 4, 5)), -1)
        weights = scores.softmax(-1)
        mixed = weights[..., :count].flatten(2, 4) @ value.permute(0, 2, 1, 3)
        mixed = mixed.unflatten(2, (-1, anchors, size)).permute(0, 3, 4, 1, 2, 5)  # [B, A, S, Hkv, G, d]
        if own_value is not None:
            by_anchor = weights[..., count:].permute(0, 3, 1, 2, 4, 5).flatten(3, 4)  # [B, A, Hkv, G * S, J]
            own = (by_anchor @ own_value.to(dtype).permute(0, 1, 3, 2, 4)).unflatten(3, (-1, size))
            mixed = mixed + own.permute(0, 1, 4, 2, 3, 5)
        return mixed.reshape(batch, anchors, size, heads, width)
