"""The example script trains, resumes, fine-tunes and unpacks, from data files and from prompts."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from specsim.live.drafters.checkpoints import load_drafter

SCRIPT = Path(__file__).parents[3] / "examples/train_drafter.py"


@pytest.fixture
def train(monkeypatch, model_folder, tmp_path):
    """Run the script; gives its exit status."""

    def train(*arguments, out="out"):
        fixed = ["--model", str(model_folder), "--out", str(tmp_path / out), "--features", "0,2", "--ffn", "32"]
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *fixed, "--batch", "2", "--anchors", "4", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        return end.value.code

    return train


@pytest.fixture
def data_file(data, tmp_path):
    outputs = [data.row(index)[data.prompt_len[index] :] for index in range(len(data))]
    prompts = [data.row(index)[: data.prompt_len[index]] for index in range(len(data))]
    arrays = {"p": np.concatenate(prompts), "o": np.concatenate(outputs), "pl": data.prompt_len, "dom": data.domain}
    np.savez(tmp_path / "rows.npz", ol=[len(output) for output in outputs], **arrays)
    return tmp_path / "rows.npz"


def test_a_drafter_is_trained_judged_and_fine_tuned(train, data_file, tmp_path):
    options = ["--data", data_file, "--eval", data_file, "--steps", 2]
    assert train(*options, "--kind", "block", "--block-size", 4, "--seed", 5, "--domains", "chat,math") == 0
    net = load_drafter(tmp_path / "out")
    assert (net.config.block_size, net.config.feature_layers, net.config.shape.ffn_size) == (4, (0, 2), 32)
    card = (tmp_path / "out/README.md").read_text()
    assert "rows.npz (sha256" in card
    assert "| domains | chat, math |" in card
    more = ["--kind", "block", "--block-size", 4, "--init", tmp_path / "out"]
    assert train(*options, *more, "--target-name", "Tiny", "--target-hash", "abc", out="more") == 0
    notes = json.loads((tmp_path / "more/config.json").read_text())["specsim"]
    assert (notes["target"], notes["target_hash"]) == ("Tiny", "abc")
    assert f"started from | {tmp_path / 'out'} |" in (tmp_path / "more/README.md").read_text()


def test_a_part_of_a_plan_is_trained(train, data_file, tmp_path, capsys):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([{"name": name, "features": [0, 2], "ffn": 32, "batch": 2} for name in "abc"]))
    options = ["--data", data_file, "--steps", 2, "--plan", plan]
    assert train(*options, "--only", "a,c") == 0
    assert sorted(json.loads((tmp_path / "out/results.json").read_text())) == ["a", "c"]
    assert train(*options, "--only", "d") == f"error: --only d: {plan} has no such drafter"
    assert "chooses drafters of a --plan" in train("--data", data_file, "--only", "a")


def test_the_target_answers_prompts_when_there_are_no_data(train, prompt_file, tmp_path):
    assert train("--prompts", prompt_file, "--max-new-tokens", 6, "--steps", 2) == 0
    card = (tmp_path / "out/README.md").read_text()
    assert "answers to 9 prompts of words.jsonl" in card
    assert "(9 greedy, 0 sampled, then greedy, 9 sampled)" in card


def test_a_plan_is_trained_flat_and_unpacked(train, data_file, tmp_path):
    plan = [{"name": "a", "ffn": 16, "features": [0, 2], "batch": 2}, {"name": "b", "ffn": 16, "features": [3]}]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    options = ["--data", data_file, "--steps", 1, "--plan", tmp_path / "plan.json", "--flat"]
    assert "each must be in 0 .. 2" in train(
        *options
    )  # layer 3 is the last, and is found out before anything is trained
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("*.safetensors"))
    plan[1]["features"] = [1]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert train(*options) == 0
    assert train("--unpack") == 0
    for name in "ab":
        assert load_drafter(tmp_path / "out" / name).config.shape.ffn_size == 16


def test_nothing_to_train_on_is_said_in_one_line(train, model_folder, data_file):
    assert "give --data or --prompts" in train()
    assert "domain 'poems'" in train("--data", data_file, "--domains", "poems", "--steps", 1)


def test_the_shipped_plan_stays_within_its_sizes():
    """Each drafter of the demo model below 16 MB in bfloat16, all of them below 50 MB."""
    from types import SimpleNamespace

    from specsim.live.training.recipe import build_net, read_plan

    shape = {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64}
    shape |= {"intermediate_size": 1536, "num_hidden_layers": 30, "vocab_size": 49152, "rms_norm_eps": 1e-5}
    config = SimpleNamespace(**shape, to_dict=lambda: shape)
    sizes = {
        recipe.name: 2 * sum(weight.numel() for weight in build_net(recipe, config).parameters())
        for recipe in read_plan(SCRIPT.with_name("drafters.json"))
    }
    assert max(sizes.values()) < 15.5e6
    assert sum(sizes.values()) < 50e6
