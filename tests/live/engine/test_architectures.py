"""Which architectures the engine runs, unmodified and exactly, and which it refuses before it runs anything."""

import pytest
import torch
import transformers

from specsim.live.greedy import decode_greedy
from specsim.live.models import LoadedModel, load_model
from specsim.live.sampling import SamplingParams
from tests.live.engine.engines import build_engine, generate, refusal, some_prompts

SHAPE = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}
OLDER = {"vocab_size": 50, "n_embd": 32, "n_layer": 3, "n_head": 4, "eos_token_id": None, "bos_token_id": None}
WIDE = {"num_key_value_heads": 4}

SUPPORTED = {
    "Llama": SHAPE,
    "Llama whose head is its embedding": SHAPE | {"tie_word_embeddings": True},
    "Qwen3": SHAPE | {"head_dim": 16},
    "Qwen2": SHAPE,
    "Mistral": SHAPE | {"sliding_window": None},
    "Gemma": SHAPE | {"head_dim": 16},
    "Phi3": SHAPE | {"pad_token_id": 0},
    "Olmo2": SHAPE,
    "GPTNeoX": {key: value for key, value in SHAPE.items() if key != "num_key_value_heads"},
    "GPT2": OLDER | {"n_positions": 128},
}
WITHOUT_EXITS = ("GPT2",)


def loaded(name, dtype=torch.float64, **config):
    """A tiny random model of an architecture, varied enough that its outputs differ."""
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(made(name, **config), dtype=dtype).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.data.mul_(4.0)
    return LoadedModel(name, "random weights", model, None, "cpu", "float64", "0" * 64, "")


def made(name, **config):
    return getattr(transformers, f"{name.split()[0]}Config")(**config)


@pytest.mark.parametrize("name", SUPPORTED)
def test_an_architecture_decodes_as_transformers_decodes_it(name):
    target = loaded(name, **SUPPORTED[name])
    target.model.set_attn_implementation("sdpa")
    prompts = some_prompts()
    expected = [output.token_ids.tolist() for output in decode_greedy(target, prompts, 12)]
    assert len({token for tokens in expected for token in tokens}) > 4
    drafters = ["ngram"] if name in WITHOUT_EXITS else ["ngram", "exit2"]
    engine = build_engine(target, "dcut@round_robin", drafters, max_num_batched_tokens=40)
    assert [request.token_ids for request in generate(engine, prompts, SamplingParams(max_tokens=12))] == expected


def saved(folder, name, **config):
    """A folder with a configuration and nothing else."""
    made(name, **config).save_pretrained(folder)
    return str(folder)


REFUSED_BY_CONFIGURATION = {
    "Gemma2": (SHAPE, "layer 0 is 'sliding_attention'"),
    "Gemma2 that attends fully": (
        SHAPE | {"layer_types": ["full_attention"] * 3},
        "layer 0 caps its attention logits at 50.0",
    ),
    "Gemma3Text": (SHAPE | {"layer_types": ["full_attention"] * 2 + ["sliding_attention"]}, "layer 2 is 'sliding_att"),
    "Mistral": (SHAPE | {"sliding_window": 8}, "layer 0 uses a sliding window"),
    "Qwen3Next": (SHAPE | {"layer_types": ["full_attention", "linear_attention"] * 2}, "layer 1 is 'linear_attention'"),
}


@pytest.mark.parametrize("name", REFUSED_BY_CONFIGURATION)
def test_sliding_recurrent_and_capped_layers_are_refused_at_load_by_their_number(name, tmp_path):
    config, told = REFUSED_BY_CONFIGURATION[name]
    if name == "Qwen3Next":
        config = config | {"num_hidden_layers": 4}
    folder = saved(tmp_path, name, **config)
    assert told in refusal(lambda: load_model(folder, load_format="dummy"))


REFUSED_BY_A_PASS = {
    "Falcon": (
        {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "alibi": True},
        "FalconForCausalLM: layer 0 does not attend through the paged cache",
    ),
    "DeepseekV3": (
        SHAPE
        | WIDE
        | {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8}
        | {"first_k_dense_replace": 3},
        "layer 0: its keys are 4 heads of 12; the paged cache holds 4 heads of 4",
    ),
    "Mpt": (
        {"vocab_size": 50, "d_model": 32, "n_layers": 3, "n_heads": 4},
        "MptForCausalLM: its configuration has no max_position_embeddings",
    ),
}


@pytest.mark.parametrize("name", REFUSED_BY_A_PASS)
def test_a_model_that_does_not_attend_through_the_cache_is_refused_when_the_engine_is_made(name):
    config, told = REFUSED_BY_A_PASS[name]
    target = loaded(name, **config)
    assert told in refusal(lambda: build_engine(target))


def test_a_capped_layer_in_a_model_that_was_loaded_elsewhere_is_refused_when_the_engine_is_made():
    target = loaded("Gemma2", **SHAPE, layer_types=["full_attention"] * 3)
    assert "layer 0: attention with softcap is not supported" in refusal(lambda: build_engine(target))


def test_a_sliding_layer_in_a_model_that_was_loaded_elsewhere_is_refused_when_the_engine_is_made():
    target = loaded("Mistral", **SHAPE, sliding_window=8)
    assert "layer 0: attention with sliding_window is not supported" in refusal(lambda: build_engine(target))


def test_an_early_exit_from_layers_kept_elsewhere_is_refused():
    target = loaded("GPT2", **SUPPORTED["GPT2"])
    assert "keeps its layers in `layers`" in refusal(lambda: build_engine(target, "fixed_depth", ["exit2"]))
