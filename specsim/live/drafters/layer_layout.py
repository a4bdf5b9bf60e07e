"""Read and write the part of a config.json that describes decoder layers, as Llama's and Qwen3's do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specsim.errors import InputError
from specsim.live.drafters.decoder_layer import LayerShape


def layer_shape(config: Mapping[str, Any], source: str, *, qk_norm: bool) -> LayerShape:
    """The shape of layers.

    config      keys of a Llama or Qwen3 configuration
    qk_norm     whether queries and keys are normalised

    Raises      InputError for a key that is missing or asks for what is not supported
    """
    for key in ("hidden_size", "num_attention_heads", "intermediate_size"):
        if not isinstance(config.get(key), int):
            raise InputError(f"{source}: config.json: {key} is {config.get(key)!r}; must be an integer")
    if config.get("hidden_act", "silu") != "silu":
        raise InputError(f"{source}: hidden_act {config['hidden_act']!r}: must be 'silu'")
    if config.get("mlp_bias"):
        raise InputError(f"{source}: mlp_bias: must be false")
    sliding = [kind for kind in config.get("layer_types") or [] if kind != "full_attention"]
    if sliding or config.get("use_sliding_window"):
        raise InputError(f"{source}: layer type {(sliding or ['sliding_attention'])[0]!r}: must be 'full_attention'")
    heads = config["num_attention_heads"]
    return LayerShape(
        hidden_size=config["hidden_size"],
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        ffn_size=config["intermediate_size"],
        norm_eps=config.get("rms_norm_eps", 1e-6),
        qk_norm=qk_norm,
        attention_bias=bool(config.get("attention_bias", False)),
        rope=_rope(config),
        max_positions=config.get("max_position_embeddings", 2048),
    )


def layer_keys(shape: LayerShape) -> dict[str, Any]:
    """Keys of a configuration that `layer_shape` reads back."""
    rope = dict(shape.rope)
    scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
    return {
        "attention_bias": shape.attention_bias,
        "attention_dropout": 0.0,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.ffn_size,
        "max_position_embeddings": shape.max_positions,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "rms_norm_eps": shape.norm_eps,
        # Both spellings: readers older than transformers 5 know only the second.
        "rope_parameters": rope,
        "rope_scaling": None if scaling.get("rope_type", "default") == "default" else scaling,
        "rope_theta": rope.get("rope_theta", 10000.0),
    }


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of the rotary embedding, in the spelling of transformers 5."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    if "type" in rope:
        rope.setdefault("rope_type", rope.pop("type"))
    rope.setdefault("rope_type", "default")
    rope.setdefault("rope_theta", config.get("rope_theta") or 10000.0)
    return rope
