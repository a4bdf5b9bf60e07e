"""Tiny random models made on the spot, so that no test of the live parts needs a download."""

import json
import string
import warnings
from importlib.util import find_spec

import pytest

LETTERS = ["<eos>", "<unk>", *string.ascii_lowercase, *string.digits, *" .,?!+-*/=()"]
NEEDS_LIVE = "needs the extra `live` (torch, transformers)"


def pytest_ignore_collect(collection_path):
    """Leave these tests out where torch is not installed, since even importing them needs it, and say so."""
    if find_spec("torch") is not None or not collection_path.name.startswith("test_"):
        return None
    warnings.warn(pytest.PytestWarning(f"{collection_path.name} left out: {NEEDS_LIVE}"), stacklevel=1)
    return True


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread():
    """Tests run beside others; tiny models gain nothing from more threads."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def make_model():
    """A Llama of 4 layers with random weights, scaled so that its outputs vary."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    def make(dtype="float64", max_position_embeddings=256, seed=0, **config):
        torch.manual_seed(seed)
        shape = {
            "vocab_size": len(LETTERS),
            "hidden_size": 48,
            "intermediate_size": 96,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "eos_token_id": 0,
            "bos_token_id": None,
            "pad_token_id": None,
        }
        config = LlamaConfig(**shape | {"max_position_embeddings": max_position_embeddings} | config)
        model = LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()
        model.set_attn_implementation("sdpa")
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.data.mul_(4.0)
        return model

    return make


@pytest.fixture(scope="session")
def tokenizer():
    """One token a character."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate(LETTERS)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", unk_token="<unk>")


@pytest.fixture(scope="session")
def make_target(make_model, tokenizer):
    """A tiny model as the recorder takes it."""
    from specsim.live.models import LoadedModel

    def make(dtype="float64", **config):
        model = make_model(dtype, **config)
        return LoadedModel("tiny", "random weights", model, tokenizer, "cpu", dtype, "0" * 64, "1" * 64)

    return make


@pytest.fixture(scope="session")
def model_folder(make_model, tokenizer, tmp_path_factory):
    """A tiny model saved as a directory of safetensors."""
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    make_model("float32").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def prompt_file(tmp_path_factory):
    """Nine short prompts in two domains."""
    path = tmp_path_factory.mktemp("prompts") / "words.jsonl"
    texts = [
        "abc abc",
        "one two three",
        "1+2=",
        "a",
        "hello hello hello",
        "zzz",
        "7*8=56, 7*9=",
        "what?",
        "(a+b)*(a-b)",
    ]
    rows = [{"id": 10 + i, "domain": "code" if i % 3 == 2 else "chat", "prompt": text} for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
