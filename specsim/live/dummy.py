"""Build a model of any shape with random weights, to measure what a step costs without having the weights.

`--load-format dummy`: what such a model says means nothing, but its kernels take as long as the real one's.
"""

from __future__ import annotations

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specsim.errors import InputError
from specsim.live.models import DTYPES, LoadedModel, _check_device, _check_rewindable
from specsim.live.shapes import find_shape

SEED = 0
MODULES = ("torch", "transformers", "accelerate")
"""What building a model needs of the extra `live`: none of what reads weights."""

SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "max_position_embeddings",
)  # fmt: skip
LARGEST_SIZE = 2**31 - 1
MOST_LAYERS = 1000
"""Each takes a millisecond to set up, whether or not its weights fit."""

HASH_PREFIX = f"specsim random weights, seed {SEED}\n"
"""Hashed before the shape, so that no hash is that of real weights, nor of a bare file."""


def load_dummy(source: str, *, dtype: str = "float32", device: str = "cpu") -> LoadedModel:
    """Build the causal language model of a shape with random weights, the same ones each time.

    source   a Hugging Face `config.json`, a folder that holds one, or a name of `shapes.SHAPES`
    dtype    one of models.DTYPES; each weight is drawn in it, on the device, and exists nowhere else
    device   a torch device, e.g. `cpu` or `cuda`
    returns  the model in eval mode, without a tokenizer; its hash is that of its shape and seed

    Raises   InputError when the shape is unknown, malformed, needs code of its own, has layers that cannot be
             rewound, or does not fit into the device's memory
    """
    missing = [name for name in MODULES if find_spec(name) is None]
    if missing:
        raise InputError(
            f"building a model needs {', '.join(missing)}, not installed; remedy: pip install 'specsim-llm[live]'"
        )
    if dtype not in DTYPES:
        raise InputError(f"dtype {dtype!r}: must be one of {', '.join(DTYPES)}")
    _check_device(device)
    name, shape = read_shape(source)
    config = _config(source, shape)
    _check_sizes(source, config.get_text_config())
    _check_rewindable(source, config.get_text_config())
    model = _build(source, config, dtype)
    _materialise(source, model, device)
    _draw_weights(source, model, device)
    text = json.dumps(shape, sort_keys=True)
    return LoadedModel(
        name=name,
        origin=f"random weights of shape {name}",
        model=model.eval(),
        tokenizer=None,
        device=device,
        dtype=dtype,
        model_hash=hashlib.sha256((HASH_PREFIX + text).encode()).hexdigest(),
        tokenizer_hash="",
    )


def read_shape(source: str) -> tuple[str, dict[str, Any]]:
    """Name of a shape, and the keys of its `config.json`.

    source  a file, a folder that holds a `config.json`, or a name of `shapes.SHAPES`
    Raises  InputError when there is none, or it is no JSON object
    """
    path = Path(source)
    file = path / "config.json" if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise InputError(f"{source}: not a model directory (config.json is missing)")
    if not file.is_file():
        return source, dict(find_shape(source).config)
    try:
        shape = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise InputError(f"{file}: not JSON: {error}") from None
    if not isinstance(shape, dict):
        raise InputError(f"{file}: holds a {type(shape).__name__}; allowed: the JSON object of a config.json")
    name = file.absolute().parent.name if file.name == "config.json" else file.stem
    return name, shape


def _config(source: str, shape: dict[str, Any]) -> Any:
    """The shape as transformers has it, refused where its architecture is not transformers' own."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    kind = shape.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        raise InputError(
            f"{source}: model_type {kind!r} is not an architecture of transformers (code that comes with a model is "
            "not run for random weights)"
        )
    if shape.get("quantization_config"):
        raise InputError(f"{source}: quantization_config: random weights are drawn in a float dtype; remove the key")
    try:
        config = CONFIG_MAPPING[kind].from_dict(shape)
    except (StrictDataclassError, ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError) as error:
        raise InputError(f"{source}: not a shape of model_type {kind!r}: {_one_line(error)}") from None
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise InputError(f"{source}: model_type {kind!r} is not a causal language model")
    return config


def _check_sizes(source: str, config: Any) -> None:
    """Refuse numbers that transformers takes and no model can have.

    Raises  InputError naming the key and what is allowed
    """
    for key in SIZES:
        value = getattr(config, key, None)
        if value is not None and not 1 <= value <= LARGEST_SIZE:
            raise InputError(f"{source}: {key} is {value}; it must be from 1 to {LARGEST_SIZE:,}")
    if config.num_hidden_layers > MOST_LAYERS:
        raise InputError(f"{source}: num_hidden_layers is {config.num_hidden_layers}; it must be at most {MOST_LAYERS}")
    heads, shared = config.num_attention_heads, getattr(config, "num_key_value_heads", None)
    if shared and heads % shared:
        raise InputError(f"{source}: num_key_value_heads is {shared}; it must divide the {heads} attention heads")


def _build(source: str, config: Any, dtype: str) -> Any:
    """The model with weights that take no memory, and real buffers: those are computed, not drawn."""
    import torch
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM

    try:
        with init_empty_weights(include_buffers=False):
            model = AutoModelForCausalLM.from_config(
                config, dtype=getattr(torch, dtype), attn_implementation="sdpa", trust_remote_code=False
            )
    except (ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError, RuntimeError) as error:
        raise InputError(f"{source}: no model can be built of this shape: {_one_line(error)}") from None
    model.tie_weights()
    return model


def _materialise(source: str, model: Any, device: str) -> None:
    """Give every weight its place on the device, tied ones the same, and move the buffers there."""
    import torch

    placed: dict[int, Any] = {}
    try:
        for module in model.modules():
            for name, weight in list(module.named_parameters(recurse=False)):
                if id(weight) not in placed:
                    # NaN, so that a weight which nobody draws is found.
                    full = torch.full(weight.shape, torch.nan, dtype=weight.dtype, device=device)
                    placed[id(weight)] = torch.nn.Parameter(full, requires_grad=False)
                setattr(module, name, placed[id(weight)])
            for name, buffer in list(module.named_buffers(recurse=False)):
                setattr(module, name, buffer.to(device))
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        weights = {id(weight): weight for weight in model.parameters()}.values()
        size = sum(weight.numel() * weight.element_size() for weight in weights)
        raise InputError(
            f"{source}: its weights take {size / 2**30:.1f} GiB, which {device} does not have: {_one_line(error)}"
        ) from None


def _draw_weights(source: str, model: Any, device: str) -> None:
    """Draw all weights in place as their architecture begins training: normal matrices, norms that scale by 1."""
    import torch

    index = [torch.device(device)] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(devices=index), torch.no_grad():
        torch.manual_seed(SEED)
        for module in model.modules():
            module._is_hf_initialized = False  # set while the weights had no memory
        model.initialize_weights()
        for name, weight in model.named_parameters():
            if torch.isnan(weight).any():
                raise InputError(f"{source}: its architecture says nothing of how {name} begins; cannot draw it")


def _one_line(error: Exception) -> str:
    """What went wrong, short enough to stand in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
