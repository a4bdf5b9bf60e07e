"""The EAGLE-3 head: drafts token by token, from the target's hidden states and then from its own.

At position t it reads the embedding of token t + 1 beside a hidden state: the target's of position t, fused from
several layers, where the target has been; its own last one where it has not. It predicts token t + 2.

Source: EAGLE-3, scaling up inference acceleration of large language models via training-time test (Li et al. 2025).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specsim.errors import InputError
from specsim.live.drafters.decoder_layer import Attend, DecoderLayer, LayerShape, RMSNorm, Rope, attend_dense


@dataclass(frozen=True)
class EagleConfig:
    """An EAGLE-3 head.

    shape                 of each layer
    feature_layers        target layers whose outputs are read, 0-based, F of them (None: see `layers_of`)
    vocab_size            of the target, V
    target_hidden_size    width of the target's hidden states
    num_layers            decoder layers; the first one reads embedding and hidden state side by side
    num_features          F
    draft_vocab_size      tokens that it can propose (None: all, by the target's LM head)
    own_embedding         whether it brings an embedding; otherwise the target's is used
    norm_before_residual  whether the residual stream starts at the normalised hidden state
    norm_before_fc        whether features are normalised together before they are fused
    norm_each_feature     whether each layer's features are normalised by themselves before they are fused
    norm_output           whether the hidden state fed back is the normalised one
    """

    shape: LayerShape
    feature_layers: tuple[int, ...] | None
    vocab_size: int
    target_hidden_size: int
    num_layers: int = 1
    num_features: int = 3
    draft_vocab_size: int | None = None
    own_embedding: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    norm_each_feature: bool = False
    norm_output: bool = False

    def layers_of(self, num_target_layers: int) -> tuple[int, ...]:
        """Target layers whose outputs are read, 0-based: those given, or EAGLE-3's choice for a target.

        Raises      InputError when the target lacks one of them
        """
        layers = self.feature_layers
        if layers is None:
            # The authors read the inputs of layers 2, n // 2 and n - 3: the outputs of those before.
            layers = (1, num_target_layers // 2 - 1, num_target_layers - 4)
        if min(layers) < 0 or max(layers) >= num_target_layers:
            raise InputError(f"feature layers {layers} of a target with {num_target_layers} layers")
        return layers


class EagleLayer(DecoderLayer):
    """The first layer: attention reads embedding and hidden state side by side."""

    def __init__(self, config: EagleConfig, rope: Rope) -> None:
        super().__init__(config.shape, 0, rope, input_size=2 * config.shape.hidden_size)
        self.hidden_norm = RMSNorm(config.shape.hidden_size, config.shape.norm_eps)
        self.norm_before_residual = config.norm_before_residual

    def join(self, embeds: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """What attention reads [..., 2h], and the residual stream [..., h]."""
        normed = self.hidden_norm(hidden)
        joined = torch.cat((self.input_layernorm(embeds), normed), dim=-1)
        return joined, normed if self.norm_before_residual else hidden


class EagleNet(nn.Module):
    """Weights and arithmetic of an EAGLE-3 head."""

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        self.config = config
        shape, width = config.shape, config.num_features * config.target_hidden_size
        self.rope = Rope(shape)
        self.fc = nn.Linear(width, shape.hidden_size, bias=False)
        rest = (DecoderLayer(shape, index, self.rope) for index in range(1, config.num_layers))
        self.layers = nn.ModuleList([EagleLayer(config, self.rope), *rest])
        self.norm = RMSNorm(shape.hidden_size, shape.norm_eps)
        if config.norm_before_fc:
            self.input_norm = RMSNorm(width, shape.norm_eps)
        if config.norm_each_feature:
            norms = (RMSNorm(config.target_hidden_size, shape.norm_eps) for _ in range(config.num_features))
            self.fc_norm = nn.ModuleList(norms)
        if config.own_embedding:
            self.embed_tokens = nn.Embedding(config.vocab_size, shape.hidden_size)
        if config.draft_vocab_size is not None:
            self.lm_head = nn.Linear(shape.hidden_size, config.draft_vocab_size, bias=False)
            self.register_buffer("target_ids", torch.arange(config.draft_vocab_size))

    def fuse(self, features: Tensor) -> Tensor:
        """Fuse the target's hidden states.

        features  [..., F * target_hidden_size], outputs of the feature layers side by side
        returns   [..., h]
        """
        if self.config.norm_before_fc:
            features = self.input_norm(features)
        if self.config.norm_each_feature:
            parts = features.chunk(self.config.num_features, dim=-1)
            features = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        return self.fc(features)

    def embed(self, tokens: Tensor, embedding: Tensor) -> Tensor:
        """Embeddings [..., h] of target tokens: by its own table, or by the target's [V, h]."""
        return nn.functional.embedding(tokens, self.embed_tokens.weight if self.config.own_embedding else embedding)

    def first_key_value(self, embeds: Tensor, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values that the first layer keeps, each [..., Hkv, d]; arguments as of `forward`."""
        first = self.layers[0]
        joined, _ = first.join(embeds, hidden)  # type: ignore[operator]
        return first.self_attn.key_value(joined, positions)  # type: ignore[union-attr, operator]

    def forward(self, embeds: Tensor, hidden: Tensor, positions: Tensor, attend: Attend) -> tuple[Tensor, Tensor]:
        """Run positions.

        embeds     [..., h], embedding of the token after each position
        hidden     [..., h], fused features, or the state fed back
        positions  [...] int64
        attend     given the keys and values of these positions; must read those before as well
        returns    [..., h] for the LM head, and [..., h] to feed back
        """
        first = self.layers[0]
        out = first.mix(*first.join(embeds, hidden), positions, attend)  # type: ignore[operator]
        for layer in list(self.layers)[1:]:
            out = layer(out, positions, attend)
        normed = self.norm(out)
        return normed, normed if self.config.norm_output else out

    def logits(self, hidden: Tensor, head: Tensor) -> Tensor:
        """Logits of the tokens it can propose: [..., draft_vocab_size] by its own head, or [..., V] by the target's."""
        return nn.functional.linear(hidden, self.lm_head.weight if self.config.draft_vocab_size is not None else head)

    def to_target(self, drafts: Tensor) -> Tensor:
        """Target tokens of indices into its logits."""
        return drafts if self.config.draft_vocab_size is None else self.target_ids[drafts]  # type: ignore[index]

    def draft_logits(self, features: Tensor, tokens: Tensor, depth: int, embedding: Tensor, head: Tensor) -> Tensor:
        """Logits of greedy drafts after a context, step by step: the definition that caches must reproduce.

        features   [T, F * target_hidden_size] of the T tokens before the anchor
        tokens     [T + 1] int64, those tokens and the anchor
        depth      drafts
        embedding  [V, h], the target's; head [V, h] likewise
        returns    [depth, draft_vocab_size or V]
        """
        kept: dict[int, tuple[Tensor, Tensor]] = {}

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            if layer in kept:
                key, value = torch.cat((kept[layer][0], key)), torch.cat((kept[layer][1], value))
            kept[layer] = key, value
            count, total = len(query), len(key)
            visible = torch.ones(count, total, dtype=torch.bool, device=key.device).tril(total - count)
            return attend_dense(query, key, value, visible)

        hidden, embeds = self.fuse(features), self.embed(tokens[1:], embedding)
        positions = torch.arange(len(features), device=features.device)
        rows = []
        for _ in range(depth):
            normed, hidden = self(embeds, hidden, positions, attend)
            rows.append(self.logits(normed[-1], head))
            hidden, positions = hidden[-1:], positions[-1:] + 1
            embeds = self.embed(self.to_target(rows[-1].argmax(-1))[None], embedding)
        return torch.stack(rows)
