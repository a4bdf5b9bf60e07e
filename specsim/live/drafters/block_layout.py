"""The config.json of a block drafter, in the layout of `dflash` 0.1.0; its weights have the names of `BlockNet`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specsim.errors import InputError
from specsim.live.drafters.block_net import BlockConfig
from specsim.live.drafters.layer_layout import layer_keys, layer_shape

KNOWN = frozenset(
    {
        "block_size",
        "final_logit_softcapping",
        "input_embedding_scale",
        "mask_token_id",
        "output_multiplier",
        "target_layer_ids",
    }
)
"""What may stand in `dflash_config`: everything else is a variant with parts that BlockNet lacks."""


def block_config(config: Mapping[str, Any], source: str) -> BlockConfig:
    """Read a block drafter's configuration.

    Raises      InputError for a variant that is not supported, or a key that is missing
    """
    own = config.get("dflash_config") or {}
    unknown = sorted(own.keys() - KNOWN)
    if unknown or any("DFlash2" in name for name in config.get("architectures") or []):
        raise InputError(
            f"{source}: dflash_config has {', '.join(unknown) or 'the second version'}; "
            f"supported are {', '.join(sorted(KNOWN))}"
        )
    if config.get("is_causal"):
        raise InputError(f"{source}: is_causal {config['is_causal']!r}: a block's tokens must see each other")

    def value(key: str, default: Any = None) -> Any:
        return own.get(key, config.get(key, default))

    mask, layers, depth = value("mask_token_id"), config.get("num_hidden_layers"), config.get("num_target_layers")
    for key, found in (("mask_token_id", mask), ("num_hidden_layers", layers), ("num_target_layers", depth)):
        if not isinstance(found, int):
            raise InputError(f"{source}: config.json: {key} is {found!r}; must be an integer")
    assert isinstance(mask, int)
    assert isinstance(layers, int)
    assert isinstance(depth, int)
    features = value("target_layer_ids") or spread_layers(depth, layers)
    if not all(isinstance(layer, int) and 0 <= layer < depth - 1 for layer in features):
        # The last layer's output is special: libraries hand it out normalised.
        raise InputError(f"{source}: target_layer_ids {features!r}: each must be in 0 .. {depth - 2}")
    cap = value("final_logit_softcapping")
    return BlockConfig(
        shape=layer_shape(config, source, qk_norm=True),
        num_layers=layers,
        feature_layers=tuple(features),
        block_size=int(value("block_size", 16)),
        mask_token=mask,
        num_target_layers=depth,
        vocab_size=int(config.get("vocab_size", 0)),
        embed_scale=float(value("input_embedding_scale", 1.0)),
        logit_scale=float(value("output_multiplier", 1.0)),
        logit_cap=float(cap) if cap else None,
    )


def block_keys(config: BlockConfig) -> dict[str, Any]:
    """Keys of a configuration that `block_config` reads back."""
    own: dict[str, Any] = {"mask_token_id": config.mask_token, "target_layer_ids": list(config.feature_layers)}
    if config.embed_scale != 1.0:
        own["input_embedding_scale"] = config.embed_scale
    if config.logit_scale != 1.0:
        own["output_multiplier"] = config.logit_scale
    if config.logit_cap is not None:
        own["final_logit_softcapping"] = config.logit_cap
    return layer_keys(config.shape) | {
        "architectures": ["DFlashDraftModel"],
        "block_size": config.block_size,
        "dflash_config": own,
        "model_type": "qwen3",
        "num_hidden_layers": config.num_layers,
        "num_target_layers": config.num_target_layers,
        "tie_word_embeddings": False,
        "vocab_size": config.vocab_size,
    }


def spread_layers(num_target_layers: int, count: int) -> tuple[int, ...]:
    """Target layers to read when none are given: spread evenly from layer 1 to the last but two, 0-based.

    count    how many; one alone is the middle layer
    """
    if count == 1:
        return (num_target_layers // 2,)
    last = num_target_layers - 3
    return tuple(round(1 + place * (last - 1) / (count - 1)) for place in range(count))
