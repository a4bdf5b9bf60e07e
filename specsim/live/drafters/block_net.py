"""The block drafter's network: a whole block of drafts in one pass, read off the target's hidden states.

Hidden states of several target layers are fused into one context feature a position. In every layer these features
give keys and values, beside those of the block's own tokens: the anchor (the last committed token) and mask tokens,
which see each other in both directions. The mask at place k predicts the token k places after the anchor.

Source: DFlash, block diffusion for flash speculative decoding (Z Lab); weights carry the names of `dflash` 0.1.0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specsim.live.drafters.decoder_layer import Attend, DecoderLayer, LayerShape, RMSNorm, Rope, attend_dense


@dataclass(frozen=True)
class BlockConfig:
    """A block drafter.

    shape              of each layer; its hidden size is the target's
    num_layers         layers of the drafter
    feature_layers     target layers whose outputs are read, 0-based, F of them
    block_size         tokens of a block, the anchor included: one more than it drafts
    mask_token         token whose embedding stands at the places to fill
    num_target_layers  layers of the target
    vocab_size         of the target, V
    embed_scale        factor on the target's embeddings
    logit_scale        factor on the logits
    logit_cap          soft limit of the logits (None: none)
    """

    shape: LayerShape
    num_layers: int
    feature_layers: tuple[int, ...]
    block_size: int
    mask_token: int
    num_target_layers: int
    vocab_size: int
    embed_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float | None = None


class BlockNet(nn.Module):
    """Weights and arithmetic of a block drafter; the embedding and the LM head are the target's."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.config = config
        shape = config.shape
        self.rope = Rope(shape)
        self.layers = nn.ModuleList(DecoderLayer(shape, index, self.rope) for index in range(config.num_layers))
        self.fc = nn.Linear(len(config.feature_layers) * shape.hidden_size, shape.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(shape.hidden_size, shape.norm_eps)
        self.norm = RMSNorm(shape.hidden_size, shape.norm_eps)

    def context(self, features: Tensor) -> Tensor:
        """Fuse the target's hidden states.

        features  [..., F * h], outputs of `feature_layers` side by side
        returns   [..., h]
        """
        return self.hidden_norm(self.fc(features))

    def context_key_value(self, context: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Keys and values that each layer keeps of context features.

        context    [..., h], see `context`
        positions  [...] int64, positions of the tokens whose hidden states they are
        returns    a pair of [..., Hkv, d] a layer
        """
        return [layer.self_attn.key_value(context, positions) for layer in self.layers]  # type: ignore[union-attr, operator]

    def forward(self, embeds: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Run the block's own tokens.

        embeds     [..., S, h], target embeddings of the anchor and of masks
        positions  [..., S] int64, the anchor's and those after it
        attend     given the block's keys and values; must read the context's as well
        returns    [..., S, h], normalised: what the LM head takes
        """
        hidden = embeds * self.config.embed_scale
        for layer in self.layers:
            hidden = layer(hidden, positions, attend)
        return self.norm(hidden)

    def logits(self, hidden: Tensor, head: Tensor) -> Tensor:
        """Logits [..., V] by the target's LM head [V, h]."""
        logits = nn.functional.linear(hidden, head)
        if self.config.logit_scale != 1.0:
            logits = logits * self.config.logit_scale
        cap = self.config.logit_cap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def block_tokens(self, anchor: Tensor) -> Tensor:
        """Tokens of a block, [..., block_size] int64, by its anchor [...]."""
        block = anchor[..., None].repeat_interleave(self.config.block_size, dim=-1)
        block[..., 1:] = self.config.mask_token
        return block

    def draft_logits(self, features: Tensor, block: Tensor, embedding: Tensor, head: Tensor) -> Tensor:
        """Logits of one block after a context, all computed at once: the definition that caches must reproduce.

        features   [T, F * h] of the T tokens before the anchor
        block      [S] int64, see `block_tokens`
        embedding  [V, h], the target's
        head       [V, h], the target's
        returns    [S - 1, V], of the S - 1 tokens after the anchor
        """
        length = len(features)
        before = torch.arange(length, device=features.device)
        positions = torch.arange(length, length + len(block), device=features.device)
        kept = self.context_key_value(self.context(features), before)

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            keys, values = kept[layer]
            return attend_dense(query, torch.cat((keys, key)), torch.cat((values, value)))

        hidden = self(nn.functional.embedding(block, embedding), positions, attend)
        return self.logits(hidden[1:], head)
