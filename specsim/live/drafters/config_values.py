"""The values of a trained drafter's config.json, checked before they are used: its authors are other programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from specsim.errors import InputError

LARGEST = 2**31 - 1
"""No size of a drafter is larger; beyond it memory would be asked for that no machine has."""

OBJECTS = ("dflash_config", "eagle_config", "rope_parameters", "rope_scaling", "transformer_layer_config")


def _size(value: Any) -> bool:
    return _whole(value) and value >= 1


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _cap(value: Any) -> bool:
    return _number(value) or (value == 0 and not isinstance(value, bool))


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _layers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_whole, value))


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


Check = tuple[str, Callable[[Any], bool], tuple[str, ...]]

CHECKS: tuple[Check, ...] = (
    (
        "a whole number of at least 1",
        _size,
        (
            "block_size", "head_dim", "hidden_size", "intermediate_size", "max_position_embeddings",
            "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "num_target_layers",
            "original_max_position_embeddings", "target_hidden_size", "vocab_size",
        ),
    ),
    ("a whole number", _whole, ("mask_token_id",)),
    (
        "a number above 0",
        _number,
        (
            "attention_factor", "beta_fast", "beta_slow", "factor", "high_freq_factor", "input_embedding_scale",
             "low_freq_factor", "output_multiplier", "rms_norm_eps", "rope_theta",
        ),
    ),
    ("a number above 0, or 0 for none", _cap, ("final_logit_softcapping",)),
    (
        "true or false",
        _flag,
        (
            "attention_bias", "fc_norm", "mlp_bias", "norm_before_fc", "norm_before_residual", "norm_output",
            "use_sliding_window",
        ),
    ),
    ("a list of layer numbers", _layers, ("eagle_aux_hidden_state_layer_ids", "target_layer_ids")),
    ("a list of names", _texts, ("architectures", "layer_types")),
    ("a name", _text, ("hidden_act", "rope_type", "speculators_model_type", "type")),
)  # fmt: skip
"""What a value must be, in words and as a test, and the keys it is asked of. A key may be missing or null."""


def checked_values(config: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The values of a config.json, those of the objects in it too, without nulls: null is as good as missing.

    config  a config.json, or an object in it
    source  named in the error

    Raises  InputError for the first value of a wrong kind, with what is allowed
    """
    values = {key: value for key, value in config.items() if value is not None}
    for allowed, fits, keys in CHECKS:
        for key in keys:
            if key in values and not fits(values[key]):
                raise InputError(f"{source}: config.json: {key} is {values[key]!r:.60}; allowed: {allowed}")
    for key in OBJECTS:
        inner = values.get(key, {})
        if not isinstance(inner, Mapping):
            raise InputError(f"{source}: config.json: {key} is {inner!r:.60}; allowed: an object")
        if key in values:
            values[key] = checked_values(inner, source)
    return values
