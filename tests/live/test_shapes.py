"""The catalogue of public shapes: every one builds, has the size it is known for, and attends fully."""

import pytest
import torch
from accelerate import init_empty_weights
from transformers import AutoModelForCausalLM

from specsim.errors import InputError
from specsim.live.dummy import _config, read_shape
from specsim.live.models import _check_rewindable
from specsim.live.shapes import SHAPES, find_shape

PARAMETERS = {
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen2.5-7b": 7_615_616_512,
    "mistral-7b-v0.3": 7_248_023_552,
    "smollm2-135m": 134_515_008,
    "gemma-2b": 2_506_172_416,
}
"""Parameters of the published weights, tied embeddings counted once."""


def test_every_shape_has_as_many_parameters_as_the_published_weights():
    assert SHAPES.keys() == PARAMETERS.keys()
    for name, count in PARAMETERS.items():
        config = _config(name, read_shape(name)[1])
        with init_empty_weights():
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.tie_weights()
        assert sum(weight.numel() for weight in model.parameters()) == count, name


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_attends_fully_and_says_where_it_is_from(name):
    config = _config(name, read_shape(name)[1])
    _check_rewindable(name, config)
    assert "config.json" in SHAPES[name].source
    assert config.eos_token_id is not None


@pytest.mark.parametrize("name", SHAPES)
def test_transformers_takes_every_key_of_a_shape_at_its_word(name):
    shape = dict(SHAPES[name].config)
    config = _config(name, dict(shape))
    theta, scaling = shape.pop("rope_theta"), shape.pop("rope_scaling", {"rope_type": "default"})
    assert {key: getattr(config, key) for key in shape} == shape
    assert config.rope_parameters == scaling | {"rope_theta": theta}


def test_a_name_that_is_not_there_is_answered_with_those_that_are():
    with pytest.raises(InputError, match=r"llama-9: no such model shape; .*llama-3-8b, .*gemma-2b"):
        find_shape("llama-9")
