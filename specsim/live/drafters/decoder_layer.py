"""The decoder layer that trained drafters are made of: weights and arithmetic, without a cache.

A layer computes queries, keys and values, and asks its caller to attend: training attends to many anchors of a
sequence at once, live drafting to caches of its own, and both run the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from specsim.errors import InputError

Attend: TypeAlias = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Called by layer number with query [..., Hq, d], key and value [..., Hkv, d] of the layer's own tokens, rotated to
their positions; gives what each query reads, [..., Hq, d]. Where the keys go and what else is seen is its business."""

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose frequencies do not depend on the length of the text."""


@dataclass(frozen=True)
class LayerShape:
    """Sizes of a decoder layer.

    hidden_size               width of the residual stream, h
    num_heads, num_kv_heads   Hq and Hkv
    head_dim                  d
    ffn_size                  inner width of the SwiGLU
    norm_eps                  of every RMSNorm
    qk_norm                   whether queries and keys are normalised per head (Qwen3's are, Llama's are not)
    attention_bias            whether the four projections have biases
    rope                      `rope_type` of ROPE_TYPES, `rope_theta`, and what the type needs
    max_positions             positions the target was trained for; some rope types depend on it
    """

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    norm_eps: float = 1e-6
    qk_norm: bool = True
    attention_bias: bool = False
    rope: Mapping[str, Any] = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10000.0})
    max_positions: int = 2048


class RMSNorm(nn.Module):
    """Root-mean-square normalisation, computed in float32 at least, as Llama's and Qwen3's."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Rope(nn.Module):
    """Rotary position embedding."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        frequencies, self.scale = rope_frequencies(shape)
        # Not a buffer: casting the net to bfloat16 would cast the frequencies too, and positions would blur.
        self._frequencies = {frequencies.device: frequencies}

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate heads to their positions.

        x          [..., H, d]
        positions  [...] int64, broadcast against x's leading axes
        """
        device = x.device
        if device not in self._frequencies:
            self._frequencies[device] = next(iter(self._frequencies.values())).to(device)
        angle = positions[..., None].float() * self._frequencies[device]
        cos = (angle.cos() * self.scale).to(x.dtype)[..., None, :]
        sin = (angle.sin() * self.scale).to(x.dtype)[..., None, :]
        low, high = x.chunk(2, dim=-1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


def rope_frequencies(shape: LayerShape) -> tuple[Tensor, float]:
    """Angle by position of each pair of a head, [d/2] float32, and the factor on cosine and sine.

    Raises      InputError for a type whose frequencies change with the length, or that lacks a parameter
    """
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    kind = shape.rope.get("rope_type", "default")
    if kind not in ROPE_TYPES or shape.rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise InputError(f"rope {dict(shape.rope)!r}: must be a full rotation of type {', '.join(ROPE_TYPES)}")
    try:
        config = Qwen3Config(
            hidden_size=shape.hidden_size,
            num_attention_heads=shape.num_heads,
            num_key_value_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            max_position_embeddings=shape.max_positions,
            rope_parameters=dict(shape.rope),
        )
    except KeyError as error:
        raise InputError(f"rope {dict(shape.rope)!r}: {error.args[0]}") from None
    rotary = Qwen3RotaryEmbedding(config)
    return rotary.inv_freq.float(), float(rotary.attention_scaling)


class Attention(nn.Module):
    """Projections around attention; attending itself is the caller's.

    shape       sizes
    input_size  width of what queries, keys and values are made from
    rope        shared by the layers
    """

    def __init__(self, shape: LayerShape, input_size: int, rope: Rope) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        bias = shape.attention_bias
        self.q_proj = nn.Linear(input_size, shape.num_heads * shape.head_dim, bias=bias)
        self.k_proj = nn.Linear(input_size, shape.num_kv_heads * shape.head_dim, bias=bias)
        self.v_proj = nn.Linear(input_size, shape.num_kv_heads * shape.head_dim, bias=bias)
        self.o_proj = nn.Linear(shape.num_heads * shape.head_dim, shape.hidden_size, bias=bias)
        self.q_norm = RMSNorm(shape.head_dim, shape.norm_eps) if shape.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(shape.head_dim, shape.norm_eps) if shape.qk_norm else nn.Identity()
        self._rope = [rope]  # in a list: it belongs to the net, not to each layer

    def query(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotated queries [..., Hq, d] of x [..., input_size]."""
        heads = self.q_proj(x).unflatten(-1, (-1, self.head_dim))
        return self._rope[0](self.q_norm(heads), positions)

    def key_value(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rotated keys and values, each [..., Hkv, d], of x [..., input_size]."""
        keys = self.k_proj(x).unflatten(-1, (-1, self.head_dim))
        values = self.v_proj(x).unflatten(-1, (-1, self.head_dim))
        return self._rope[0](self.k_norm(keys), positions), values


class SwiGLU(nn.Module):
    """The feed-forward part."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.ffn_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.ffn_size, bias=False)
        self.down_proj = nn.Linear(shape.ffn_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """Attention and feed-forward, each behind a norm and added to the residual stream.

    index       the number given to `attend`
    input_size  width of what attention reads (None: the hidden size)
    """

    def __init__(self, shape: LayerShape, index: int, rope: Rope, input_size: int | None = None) -> None:
        super().__init__()
        self.index = index
        self.self_attn = Attention(shape, input_size or shape.hidden_size, rope)
        self.mlp = SwiGLU(shape)
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.norm_eps)

    def forward(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Hidden states after the layer, [..., h], of those before it."""
        return self.mix(self.input_layernorm(hidden), hidden, positions, attend)

    def mix(self, normed: Tensor, residual: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """The layer behind its input norm: `normed` is what attention reads, `residual` what it is added to."""
        query = self.self_attn.query(normed, positions)
        key, value = self.self_attn.key_value(normed, positions)
        hidden = residual + self.self_attn.o_proj(attend(self.index, query, key, value).flatten(-2))
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


def attend_dense(query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None) -> Tensor:
    """Plain attention of one set of queries to one set of keys: the definition.

    query       [..., Q, Hq, d]
    key, value  [..., K, Hkv, d]
    visible     [..., Q, K] bool (None: every key)
    returns     [..., Q, Hq, d]
    """
    groups = query.shape[-2] // key.shape[-2]
    key, value = key.repeat_interleave(groups, dim=-2), value.repeat_interleave(groups, dim=-2)
    scores = torch.einsum("...qhd,...khd->...hqk", query, key) * query.shape[-1] ** -0.5
    if visible is not None:
        scores = scores.masked_fill(~visible[..., None, :, :], float("-inf"))
    weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(value.dtype)
    return torch.einsum("...hqk,...khd->...qhd", weights, value)
