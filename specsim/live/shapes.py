"""Shapes of public models by name, so that a model of that shape can be built without downloading anything.

Facts only: sizes, rotary base, norm epsilon. Every shape attends fully at every layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specsim.errors import InputError


@dataclass(frozen=True)
class Shape:
    """The shape of one public model.

    config  keys of a Hugging Face `config.json`
    source  where the figures are published, and against what they were checked
    """

    config: Mapping[str, Any]
    source: str


CHECKED = "as in litgpt 0.5.9 (litgpt/config.py)"
PUBLISHED = f"its config.json on the hub, sizes and rotary base {CHECKED}"

LLAMA_3 = {
    "model_type": "llama",
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 128001,
    "tie_word_embeddings": False,
}
LLAMA_3_ROPE = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LLAMA_3_8B = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "head_dim": 128}
QWEN_3 = {
    "model_type": "qwen3",
    "vocab_size": 151936,
    "head_dim": 128,
    "num_key_value_heads": 8,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-6,
    "eos_token_id": 151645,
    "tie_word_embeddings": False,
}

SHAPES: dict[str, Shape] = {
    "llama-3-8b": Shape(
        LLAMA_3 | LLAMA_3_8B | {"max_position_embeddings": 8192},
        f"meta-llama/Meta-Llama-3-8B: {PUBLISHED}",
    ),
    "llama-3.1-8b": Shape(
        LLAMA_3 | LLAMA_3_8B | {"max_position_embeddings": 131072, "rope_scaling": LLAMA_3_ROPE | {"factor": 8.0}},
        f"meta-llama/Llama-3.1-8B: {PUBLISHED}",
    ),
    "llama-3.2-1b": Shape(
        LLAMA_3
        | {
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "head_dim": 64,
            "max_position_embeddings": 131072,
            "rope_scaling": LLAMA_3_ROPE | {"factor": 32.0},
            "tie_word_embeddings": True,
        },
        f"meta-llama/Llama-3.2-1B: {PUBLISHED}",
    ),
    "qwen3-0.6b": Shape(
        QWEN_3
        | {
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "tie_word_embeddings": True,
        },
        f"Qwen/Qwen3-0.6B: {PUBLISHED}",
    ),
    "qwen3-8b": Shape(
        QWEN_3 | {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32},
        f"Qwen/Qwen3-8B: {PUBLISHED}",
    ),
    "qwen3-32b": Shape(
        QWEN_3 | {"hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64, "num_attention_heads": 64},
        f"Qwen/Qwen3-32B: {PUBLISHED}",
    ),
    "qwen2.5-7b": Shape(
        {
            "model_type": "qwen2",
            "vocab_size": 152064,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "max_position_embeddings": 131072,
            "rope_theta": 1000000.0,
            "rms_norm_eps": 1e-6,
            "eos_token_id": 151643,
            "use_sliding_window": False,
            "tie_word_embeddings": False,
        },
        f"Qwen/Qwen2.5-7B: {PUBLISHED}",
    ),
    "mistral-7b-v0.3": Shape(
        {
            "model_type": "mistral",
            "vocab_size": 32768,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 32768,
            "rope_theta": 1000000.0,  # litgpt leaves its default of 10,000 here; v0.2 and v0.3 are published with 1e6
            "rms_norm_eps": 1e-5,
            "eos_token_id": 2,
            "sliding_window": None,
            "tie_word_embeddings": False,
        },
        f"mistralai/Mistral-7B-v0.3: its config.json on the hub, sizes {CHECKED}",
    ),
    "smollm2-135m": Shape(
        {
            "model_type": "llama",
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "head_dim": 64,
            "max_position_embeddings": 8192,
            "rope_theta": 100000.0,
            "rms_norm_eps": 1e-5,
            "eos_token_id": 0,
            "tie_word_embeddings": True,
        },
        f"HuggingFaceTB/SmolLM2-135M: {PUBLISHED}",
    ),
    "gemma-2b": Shape(
        {
            "model_type": "gemma",
            "vocab_size": 256000,
            "hidden_size": 2048,
            "intermediate_size": 16384,
            "num_hidden_layers": 18,
            "num_attention_heads": 8,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "hidden_act": "gelu_pytorch_tanh",
            "max_position_embeddings": 8192,
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-6,
            "eos_token_id": 1,
            "tie_word_embeddings": True,
        },
        f"google/gemma-2b: its config.json on the hub, sizes {CHECKED}",
    ),
}


def find_shape(name: str) -> Shape:
    """The shape of a public model.

    name    its name in `SHAPES`
    Raises  InputError naming those there are
    """
    if name not in SHAPES:
        raise InputError(
            f"{name}: no such model shape; give a config.json, a folder that holds one, or one of {', '.join(SHAPES)}"
        )
    return SHAPES[name]
