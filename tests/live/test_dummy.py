"""Random weights of any shape: built as transformers would, in place, the same each time."""

import json

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from specsim.errors import InputError
from specsim.live import dummy
from specsim.live.dummy import load_dummy
from specsim.live.models import load_model

TINY = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rope_theta": 12345.0,
    "eos_token_id": 3,
}
LLAMA_3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES = {
    "llama": {"rope_scaling": LLAMA_3_ROPE},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 32},
    "mistral": {"sliding_window": None},
    "gemma": {"head_dim": 32},
    "mixtral": {"num_local_experts": 4, "sliding_window": None},
    "gpt2": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 128},
}


@pytest.fixture
def write(tmp_path):
    """Writes a shape to `tiny/config.json` and returns the folder."""

    def write_shape(**changes):
        folder = tmp_path / "tiny"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(TINY | {"model_type": "llama"} | changes))
        return folder

    return write_shape


def built_normally(shape, dtype):
    torch.manual_seed(11)
    config = CONFIG_MAPPING[shape["model_type"]].from_dict(shape)
    return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_is_the_one_transformers_builds_but_for_the_draws(write, family):
    shape = TINY | {"model_type": family} | FAMILIES[family]
    made = load_dummy(str(write(model_type=family, **FAMILIES[family])), dtype="bfloat16").model
    normal = built_normally(shape, torch.bfloat16)
    assert type(made) is type(normal)
    theirs = dict(normal.named_parameters())
    assert {name: (weight.shape, weight.dtype) for name, weight in made.named_parameters()} == {
        name: (weight.shape, weight.dtype) for name, weight in theirs.items()
    }
    for name, weight in made.named_parameters():
        spread = theirs[name].float().std().item()
        assert weight.float().std().item() == pytest.approx(spread, rel=5 / weight.numel() ** 0.5), name
        if spread == 0:  # norms and biases: no draw at all
            assert torch.equal(weight, theirs[name]), name
    assert not made.training
    assert not any(weight.requires_grad for weight in made.parameters())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_buffers_are_bit_for_bit_those_of_a_model_built_normally(write, family, dtype):
    shape = TINY | {"model_type": family} | FAMILIES[family]
    made = load_dummy(str(write(model_type=family, **FAMILIES[family])), dtype=dtype).model
    theirs = dict(built_normally(shape, getattr(torch, dtype)).named_buffers())
    ours = dict(made.named_buffers())
    assert ours.keys() == theirs.keys()
    assert (family == "gpt2") != any("inv_freq" in name for name in ours)
    for name, buffer in ours.items():
        assert buffer.dtype == theirs[name].dtype
        assert torch.equal(buffer, theirs[name]), name
    assert made.state_dict().keys() == built_normally(shape, torch.float32).state_dict().keys()


def test_with_the_same_weights_it_computes_what_a_model_built_normally_computes(write):
    made = load_dummy(str(write(rope_scaling=LLAMA_3_ROPE)), dtype="float64").model
    normal = built_normally(TINY | {"model_type": "llama", "rope_scaling": LLAMA_3_ROPE}, torch.float64)
    normal.load_state_dict(made.state_dict())
    ids = torch.arange(60)[None]
    with torch.inference_mode():
        logits = made(ids).logits
        assert torch.equal(logits, normal(ids).logits)
    assert torch.isfinite(logits).all()
    assert logits.std(dim=-1).min() > 0


def test_the_weights_are_the_same_each_time_and_no_draw_of_the_caller_is_used_up(write):
    folder = str(write())
    torch.manual_seed(7)
    one = load_dummy(folder)
    following = torch.rand(1)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(1), following)
    two = load_dummy(folder)
    for name, weight in one.model.state_dict().items():
        assert torch.equal(weight, two.model.state_dict()[name]), name
    assert one.model_hash == two.model_hash


def test_another_seed_draws_other_weights(write, monkeypatch):
    one = load_dummy(str(write())).model.lm_head.weight
    monkeypatch.setattr(dummy, "SEED", 1)
    assert not torch.equal(one, load_dummy(str(write())).model.lm_head.weight)


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_share_their_memory_exactly_when_the_shape_ties_them(write, tied):
    model = load_dummy(str(write(tie_word_embeddings=tied))).model
    assert (model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()) == tied
    assert ("lm_head.weight" in dict(model.named_parameters())) != tied


def test_it_says_what_it_is_and_its_hash_is_that_of_the_shape_in_any_order(write):
    folder = write()
    loaded = load_dummy(str(folder), dtype="float64")
    assert (loaded.name, loaded.origin) == ("tiny", "random weights of shape tiny")
    assert (loaded.tokenizer, loaded.tokenizer_hash, loaded.dtype, loaded.device) == (None, "", "float64", "cpu")
    assert (loaded.num_layers, loaded.stop_ids) == (3, (3,))
    shape = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(dict(reversed(shape.items())), indent=2))
    assert load_dummy(str(folder / "config.json")).model_hash == loaded.model_hash
    assert load_dummy(str(write(hidden_act="gelu"))).model_hash != loaded.model_hash
    assert len(loaded.model_hash) == 64


def test_a_shape_without_a_stop_token_has_none(write):
    assert load_dummy(str(write(eos_token_id=None))).stop_ids == ()


def test_load_model_builds_it_when_told_to(write):
    loaded = load_model(str(write()), dtype="bfloat16", load_format="dummy")
    assert loaded.origin == "random weights of shape tiny"
    assert loaded.model.dtype == torch.bfloat16


def test_only_what_building_needs_must_be_installed(write, monkeypatch):
    monkeypatch.setattr("specsim.live.extra.find_spec", lambda name: None)
    load_model(str(write()), load_format="dummy")
    monkeypatch.setattr(dummy, "find_spec", lambda name: None if name in ("torch", "gguf") else name)
    refused("building a model needs torch, not installed; remedy: pip install 'specsim-llm[live]'", write())


def test_a_name_of_the_catalogue_will_do(monkeypatch):
    monkeypatch.setitem(dummy.find_shape("smollm2-135m").config, "num_hidden_layers", 1)
    loaded = load_dummy("smollm2-135m", dtype="bfloat16")
    assert (loaded.name, loaded.num_layers, loaded.model.config.hidden_size) == ("smollm2-135m", 1, 576)


def refused(told, source, load=load_dummy, **options):
    with pytest.raises(InputError) as error:
        load(str(source), **options)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_options_outside_the_allowed_values_are_refused(write):
    refused("'int8': must be one of float32", write(), dtype="int8")
    refused("device 'abacus' cannot be used here", write(), device="abacus")
    refused("load format 'safe': must be one of auto, dummy", write(), load_model, load_format="safe")
    refused("leave out the permissions", write(), load_model, load_format="dummy", allow_remote_code=True)


def test_what_is_no_shape_is_refused_saying_why(write, tmp_path):
    (tmp_path / "empty").mkdir()
    refused("config.json is missing", tmp_path / "empty")
    refused("no such model shape", tmp_path / "absent")
    (tmp_path / "cut.json").write_text('{"model_type": "lla')
    refused("not JSON", tmp_path / "cut.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    refused("not JSON", tmp_path / "deep.json")
    (tmp_path / "list.json").write_text("[1]")
    refused("holds a list", tmp_path / "list.json")
    refused("model_type None is not an architecture", write(model_type=None))
    refused("'t5' is not a causal language model", write(model_type="t5"))
    refused("not a shape of model_type 'llama'", write(hidden_size="wide"))
    refused("not a shape of model_type 'llama'", write(num_attention_heads=5))
    refused("no model can be built", write(hidden_act="abacus"))
    refused("hidden_size is -64; it must be from 1", write(hidden_size=-64))
    refused("num_key_value_heads is 3; it must divide", write(num_key_value_heads=3))
    refused("num_hidden_layers is 0", write(num_hidden_layers=0))
    refused("num_hidden_layers is 1000000; it must be at most 1000", write(num_hidden_layers=10**6))
    refused("not a shape of model_type 'llama'", write(dtype="abacus"))
    refused("quantization_config", write(quantization_config={"quant_method": "gptq"}))


def test_code_that_comes_with_a_shape_is_not_run(write):
    own = {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}
    folder = write(model_type="unheard-of", auto_map=own)
    (folder / "own.py").write_text("raise SystemExit('code of the model ran')\n")
    refused("code that comes with a model is not run", folder)
    folder = write(model_type="llama", auto_map=own)
    assert type(load_dummy(str(folder)).model).__module__.startswith("transformers.")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model_type": "mistral", "sliding_window": 8}, "layer 0 uses a sliding window"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2},
            "layer 2 is 'sliding_attention'",
        ),
    ],
)
def test_layers_that_cannot_be_rewound_are_refused_before_anything_is_built(write, monkeypatch, changed, told):
    monkeypatch.setattr(dummy, "_build", lambda *_: pytest.fail("built"))
    refused(told, write(**changed))


def test_weights_that_do_not_fit_are_refused_with_their_size(write, monkeypatch):
    def no_room(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    folder = write(tie_word_embeddings=True, vocab_size=2**23)
    monkeypatch.setattr(torch, "full", no_room)
    refused(
        "tiny: its weights take 1.0 GiB, which cpu does not have: CUDA out of memory. Tried", folder, dtype="float16"
    )
    refused("vocab_size is 288230376151711744; it must be from 1 to 2,147,483,647", write(vocab_size=2**58))


def test_a_weight_that_its_architecture_does_not_draw_is_named(write, monkeypatch):
    build = dummy._build

    def with_own_weight(*arguments):
        model = build(*arguments)
        model.model.norm.register_parameter("scale", torch.nn.Parameter(torch.ones(2, device="meta")))
        return model

    monkeypatch.setattr(dummy, "_build", with_own_weight)
    refused("says nothing of how model.norm.scale begins", write())


def test_no_weight_has_memory_before_it_is_drawn_in_place(write, monkeypatch):
    seen = {}
    materialise = dummy._materialise

    def watched(source, model, device):
        seen.update({name: weight.device.type for name, weight in model.named_parameters()})
        materialise(source, model, device)
        seen["pointers"] = {name: weight.data_ptr() for name, weight in model.named_parameters()}

    monkeypatch.setattr(dummy, "_materialise", watched)
    model = load_dummy(str(write()), dtype="bfloat16").model
    pointers = seen.pop("pointers")
    assert set(seen.values()) == {"meta"}
    assert {name: weight.data_ptr() for name, weight in model.named_parameters()} == pointers


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_nothing_but_the_weights_in_their_precision_is_ever_there():
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model = load_dummy("llama-3.2-1b", dtype="bfloat16", device="cuda").model
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    assert torch.cuda.max_memory_allocated() - before < 1.3 * size  # the check for NaN takes a bool an element
    assert {weight.device.type for weight in [*model.parameters(), *model.buffers()]} == {"cuda"}
    with torch.inference_mode():
        assert torch.isfinite(model(torch.arange(8, device="cuda")[None]).logits).all()
