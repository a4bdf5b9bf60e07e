"""The two public layouts of EAGLE-3 heads: speculators', and that of EAGLE's authors.

Both count the hidden states they read by the layers that have run: number i is the input of layer i, which is the
output of layer i - 1, the way `EagleConfig` counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specsim.errors import InputError
from specsim.live.drafters.eagle_net import EagleConfig
from specsim.live.drafters.layer_layout import layer_keys, layer_shape

FLAGS = {
    "norm_before_residual": "norm_before_residual",
    "norm_before_fc": "norm_before_fc",
    "fc_norm": "norm_each_feature",
    "norm_output": "norm_output",
}
"""Switches of config.json, and their names in `EagleConfig`."""

IGNORED = frozenset({"verifier_norm.weight", "verifier_lm_head.weight"})
"""Copies of the target's weights that training leaves behind."""


def eagle_config(config: Mapping[str, Any], weights: Mapping[str, Tensor], source: str) -> EagleConfig:
    """Read an EAGLE-3 head's configuration; what it leaves open is read off the weights.

    Raises      InputError when it is no EAGLE-3 head, or has parts that are not supported
    """
    speculators = config.get("speculators_model_type")
    names = {_plain(name) for name in weights}
    if speculators not in (None, "eagle3") or "fc.weight" not in names or "layers.0.hidden_norm.weight" not in names:
        raise InputError(
            f"{source}: neither a block drafter nor an EAGLE-3 head; supported are the layouts of dflash 0.1.0, of "
            "speculators (speculators_model_type: eagle3) and of EAGLE-3's authors"
        )
    layers = config.get("transformer_layer_config") if speculators else config
    if not isinstance(layers, Mapping):
        raise InputError(f"{source}: config.json: transformer_layer_config is missing")
    if "vocab_size" not in layers:
        raise InputError(f"{source}: config.json: vocab_size is missing")
    shape = layer_shape(layers, source, qk_norm="layers.0.self_attn.q_norm.weight" in names)
    target_size = config.get("target_hidden_size") or shape.hidden_size
    width = next(value.shape[1] for name, value in weights.items() if _plain(name) == "fc.weight")
    if width % target_size:
        raise InputError(f"{source}: fc.weight reads {width} numbers, not a multiple of the target's {target_size}")
    ids = config.get("eagle_aux_hidden_state_layer_ids")
    nested = config.get("eagle_config") or {}
    ids = ids or nested.get("eagle_aux_hidden_state_layer_ids")
    flags = {own: bool(config.get(key) or nested.get(key)) for key, own in FLAGS.items()}
    return EagleConfig(
        shape=shape,
        feature_layers=tuple(number - 1 for number in ids) if ids else None,
        vocab_size=int(layers["vocab_size"]),
        target_hidden_size=target_size,
        num_layers=int(layers.get("num_hidden_layers", 1)) if speculators else 1,
        num_features=width // target_size,
        draft_vocab_size=_draft_vocab(names, weights),
        own_embedding="embed_tokens.weight" in names,
        **flags,
    )


def eagle_weights(config: EagleConfig, weights: Mapping[str, Tensor]) -> tuple[EagleConfig, dict[str, Tensor]]:
    """Weights under the names of `EagleNet`."""
    out = {_plain(name): value for name, value in weights.items()}
    out = {name: value for name, value in out.items() if name not in IGNORED}
    offsets = out.pop("d2t", None)
    out.pop("t2d", None)  # says the same as d2t
    if config.draft_vocab_size is not None:
        ids = torch.arange(config.draft_vocab_size)
        out["target_ids"] = ids if offsets is None else ids + offsets.to(torch.int64)
    if config.own_embedding:
        config = replace(config, vocab_size=len(out["embed_tokens.weight"]))
    return config, out


def eagle_keys(config: EagleConfig) -> dict[str, Any]:
    """Keys of a configuration in speculators' layout that `eagle_config` reads back."""
    layers = layer_keys(config.shape) | {
        "mlp_bias": False,
        "model_type": "qwen3" if config.shape.qk_norm else "llama",
        "num_hidden_layers": config.num_layers,
        "vocab_size": config.vocab_size,
    }
    ids = None if config.feature_layers is None else [layer + 1 for layer in config.feature_layers]
    return {key: getattr(config, own) for key, own in FLAGS.items()} | {
        "architectures": ["Eagle3DraftModel"],
        "draft_vocab_size": config.draft_vocab_size or config.vocab_size,
        "eagle_aux_hidden_state_layer_ids": ids,
        "speculators_config": {"algorithm": "eagle3"},
        "speculators_model_type": "eagle3",
        "target_hidden_size": config.target_hidden_size,
        "tie_word_embeddings": False,
        "transformer_layer_config": layers,
    }


def _draft_vocab(names: set[str], weights: Mapping[str, Tensor]) -> int | None:
    """Rows of its own LM head, if it has one."""
    if "lm_head.weight" not in names:
        return None
    return next(len(value) for name, value in weights.items() if _plain(name) == "lm_head.weight")


def _plain(name: str) -> str:
    """A weight's name in `EagleNet`."""
    return name.removeprefix("model.").replace("midlayer.", "layers.0.")
