"""Trained drafters come back from disk as they were, and what does not fit is refused in one line."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from specsim.errors import InputError
from specsim.live.drafters.block_net import BlockConfig, BlockNet
from specsim.live.drafters.checkpoints import check_drafter, load_drafter, locate, save_drafter, unpack
from specsim.live.drafters.decoder_layer import LayerShape
from specsim.live.drafters.eagle_net import EagleConfig, EagleNet

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
SHAPE = LayerShape(24, 4, 2, 16, 40, norm_eps=1e-5, rope={"rope_type": "default", "rope_theta": 1e5}, max_positions=256)
BLOCK = BlockConfig(SHAPE, 2, (1, 3), 6, 5, 9, 37, embed_scale=2.0, logit_scale=0.5, logit_cap=30.0)
EAGLE = EagleConfig(SHAPE, (1, 3, 6), 37, 24)
NETS = {
    "block": lambda: BlockNet(BLOCK),
    "yarn": lambda: BlockNet(replace(BLOCK, shape=replace(SHAPE, rope=YARN))),
    "eagle": lambda: EagleNet(EAGLE),
    "llama": lambda: EagleNet(
        replace(EAGLE, shape=replace(SHAPE, qk_norm=False), num_layers=2, norm_before_residual=True)
    ),
    "own": lambda: EagleNet(replace(EAGLE, draft_vocab_size=20, own_embedding=True, norm_output=True)),
    "normed": lambda: EagleNet(replace(EAGLE, norm_before_fc=True, norm_each_feature=True, target_hidden_size=30)),
}


@pytest.mark.parametrize("kind", NETS)
def test_a_saved_drafter_comes_back_with_its_configuration_and_weights(kind, tmp_path):
    torch.manual_seed(0)
    net = NETS[kind]()
    if kind == "own":
        net.target_ids.copy_(torch.randperm(37)[:20])
    save_drafter(net, tmp_path / "out", dtype=torch.float32)
    back = load_drafter(tmp_path / "out")
    assert type(back) is type(net)
    assert back.config == net.config
    assert not back.training
    for name, value in net.state_dict().items():
        assert torch.equal(back.state_dict()[name], value), name


def test_weights_are_stored_in_bfloat16_and_widened_when_asked(tmp_path):
    net = BlockNet(BLOCK)
    file = save_drafter(net, tmp_path)
    assert {value.dtype for value in load_file(file).values()} == {torch.bfloat16}
    assert load_drafter(tmp_path).fc.weight.dtype == torch.bfloat16
    wide = load_drafter(tmp_path, dtype=torch.float32).fc.weight
    assert torch.equal(wide, net.fc.weight.to(torch.bfloat16).float())


def test_a_weights_file_that_travelled_alone_is_unpacked_to_its_folder(tmp_path):
    file = save_drafter(EagleNet(EAGLE), tmp_path / "there", notes={"target": "tiny"}, card="# A head\n")
    alone = tmp_path / "alone.safetensors"
    alone.write_bytes(file.read_bytes())
    unpack(alone, tmp_path / "here")
    for name in ("config.json", "README.md", "model.safetensors"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    assert json.loads((tmp_path / "here/config.json").read_text())["specsim"] == {"target": "tiny"}
    save_file({"x": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    with pytest.raises(InputError, match="holds no config"):
        unpack(tmp_path / "foreign.safetensors", tmp_path / "nowhere")


def change(folder, **keys):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"intermediate_size": 48},
            r"6 weights do not fit .* layers.0.mlp.down_proj.weight: \(24, 40\), expected \(24, 48\)",
        ),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"dflash_config": {"selector_rank": 8}}, "selector_rank"),
        ({"architectures": ["DFlash2DraftModel"]}, "second version"),
        ({"is_causal": True}, "is_causal"),
        ({"num_target_layers": None}, "num_target_layers is None"),
        ({"dflash_config": {"mask_token_id": 5, "target_layer_ids": [1, 8]}}, "each must be in 0 .. 7"),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "must be a full rotation"),
    ],
)
def test_a_block_drafter_that_cannot_be_run_exactly_is_refused(tmp_path, keys, message):
    save_drafter(BlockNet(BLOCK), tmp_path)
    change(tmp_path, **keys)
    with pytest.raises(InputError, match=message):
        load_drafter(tmp_path)


def test_other_models_and_missing_files_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"config.json is missing"):
        load_drafter(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        load_drafter(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(InputError, match="neither"):
        load_drafter(tmp_path)
    save_file({"model.norm.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="neither a block drafter nor an EAGLE-3 head"):
        load_drafter(tmp_path)
    with pytest.raises(InputError, match="no such drafter folder"):
        locate(tmp_path / "absent")


def test_pickled_weights_are_read_only_when_allowed(tmp_path):
    save_drafter(EagleNet(EAGLE), tmp_path, dtype=torch.float32)
    weights = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    torch.save(weights, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="pickled"):
        load_drafter(tmp_path)
    assert torch.equal(load_drafter(tmp_path, allow_pickle=True).fc.weight, weights["fc.weight"])
    (tmp_path / "pytorch_model.bin").write_text("junk")
    with pytest.raises(InputError, match=r"pytorch_model\.bin: cannot be read: "):
        load_drafter(tmp_path, allow_pickle=True)
    for other in ([1, 2], {"fc.weight": 3}):
        torch.save(other, tmp_path / "pytorch_model.bin")
        with pytest.raises(InputError, match="holds no tensors by name"):
            load_drafter(tmp_path, allow_pickle=True)


@pytest.mark.parametrize("kind", NETS)
def test_a_drafter_is_checked_without_reading_its_weights(kind, tmp_path, monkeypatch):
    save_drafter(NETS[kind](), tmp_path)
    monkeypatch.setattr("safetensors.torch.load_file", lambda *_, **__: pytest.fail("weights were read"))
    check_drafter(tmp_path)


def test_pickled_weights_are_checked_by_their_shapes_alone(tmp_path):
    save_drafter(EagleNet(replace(EAGLE, draft_vocab_size=20)), tmp_path, dtype=torch.float32)
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="pickled"):
        check_drafter(tmp_path)
    check_drafter(tmp_path, allow_pickle=True)
    (tmp_path / "pytorch_model.bin").write_bytes((tmp_path / "pytorch_model.bin").read_bytes()[:-100])
    with pytest.raises(InputError, match=r"pytorch_model\.bin: cannot be read: "):
        check_drafter(tmp_path, allow_pickle=True)
    torch.save({"fc.weight": torch.zeros(3, 3)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="neither a block drafter nor an EAGLE-3 head"):
        check_drafter(tmp_path, allow_pickle=True)


BREAKS = {
    "no folder": (lambda folder: folder.rename(folder.with_name("elsewhere")), "no such drafter folder"),
    "no configuration": (lambda folder: (folder / "config.json").unlink(), r"config\.json is missing"),
    "no JSON": (lambda folder: (folder / "config.json").write_text("{"), "not JSON"),
    "a wrong value": (lambda folder: change(folder, block_size="7"), "block_size is '7'; allowed: a whole number"),
    "other layers": (lambda folder: change(folder, num_hidden_layers=3), "weights do not fit its config.json"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "holds neither"),
    "weights cut off": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-1]),
        r"model\.safetensors: cannot be read",
    ),
    "a broken header": (
        lambda folder: (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n"),
        r"model\.safetensors: cannot be read",
    ),
}


@pytest.mark.parametrize(("damage", "message"), BREAKS.values(), ids=BREAKS)
def test_what_loading_would_refuse_checking_refuses_in_the_same_words(tmp_path, damage, message):
    folder = tmp_path / "head"
    save_drafter(BlockNet(BLOCK), folder)
    damage(folder)
    said = []
    for refuse in (check_drafter, load_drafter):
        with pytest.raises(InputError, match=message) as error:
            refuse(folder)
        said.append(str(error.value))
    assert said[0] == said[1]
