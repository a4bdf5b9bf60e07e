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
    card = (tmp_path / "more/README.md").read_text()
    assert "| started from | out |" in card
    assert str(tmp_path) not in card


def test_a_part_of_a_plan_is_trained(train, data_file, tmp_path, capsys):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([{"name": name, "features": [0, 2], "ffn": 32, "batch": 2} for name in "abc"]))
    options = ["--data", data_file, "--steps", 2, "--plan", plan]
    assert train(*options, "--only", "a,c") == 0
    assert sorted(json.loads((tmp_path / "out/results.json").read_text())) == ["a", "c"]
    assert train(*options, "--only", "d") == 2
    assert f"error: --only d: {plan} has no such drafter" in capsys.readouterr().err


def test_the_card_names_the_domains_that_the_data_hold(train, data_file, tmp_path):
    arrays = dict(np.load(data_file))
    np.savez(tmp_path / "math.npz", **arrays | {"dom": np.full_like(arrays["dom"], 2)})
    assert train("--data", tmp_path / "math.npz", "--steps", 1) == 0
    assert "| domains | math |" in (tmp_path / "out/README.md").read_text()


def test_the_target_answers_prompts_when_there_are_no_data(train, prompt_file, tmp_path):
    assert train("--prompts", prompt_file, "--max-new-tokens", 6, "--steps", 2) == 0
    card = (tmp_path / "out/README.md").read_text()
    assert "answers to 9 prompts of words.jsonl" in card
    assert "(9 greedy, 0 sampled, then greedy, 9 sampled)" in card


def test_a_plan_is_trained_flat_and_unpacked(train, data_file, tmp_path, capsys):
    plan = [{"name": "a", "ffn": 16, "features": [0, 2], "batch": 2}, {"name": "b", "ffn": 16, "features": [3]}]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    options = ["--data", data_file, "--steps", 1, "--plan", tmp_path / "plan.json", "--flat"]
    assert train(*options) == 2  # layer 3 is the last, and is found out before anything is trained
    assert "each must be in 0 .. 2" in capsys.readouterr().err
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("*.safetensors"))
    plan[1]["features"] = [1]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert train(*options) == 0
    assert train("--unpack") == 0
    for name in "ab":
        assert load_drafter(tmp_path / "out" / name).config.shape.ffn_size == 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --data or --prompts"),
        (["--data", "DATA", "--domains", "poems", "--steps", 1], "domain 'poems'"),
        (["--data", "DATA", "--features", "1,x"], "--features 1,x: must be numbers of layers"),
        (["--data", "DATA", "--features", "1,99", "--steps", 1], "99"),
        (["--data", "DATA", "--steps", 0], "--steps 0: must be above 0"),
        (["--data", "DATA", "--minutes", "nan"], "--minutes nan: must be above 0"),
        (["--data", "DATA", "--eval", "nowhere.npz"], "nowhere.npz: no such file"),
        (["--data", "DATA", "--batch", "-5", "--steps", 1], "batch, learning_rate and seed must be at least 0"),
        (["--only", "eagle-chat"], "--only: chooses drafters of a --plan"),
        (["--unpack"], "holds no NAME.safetensors"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(train, data_file, capsys, arguments, message):
    assert train(*(data_file if word == "DATA" else word for word in arguments)) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert message in line


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "../a"}, "drafter '../a': must be the name of a folder"),
        ({"name": ".."}, "must be the name of a folder"),
        ({"name": "a", "features": [1, "x"]}, "must be numbers of layers"),
        ({"name": "a", "domains": [3]}, "must be names"),
        ({"name": "a", "kid": "eagle"}, "unknown key 'kid'"),
    ],
)
def test_a_plan_that_cannot_be_trained_is_refused(train, data_file, tmp_path, capsys, entry, message):
    (tmp_path / "plan.json").write_text(json.dumps([entry]))
    assert train("--data", data_file, "--steps", 1, "--plan", tmp_path / "plan.json") == 2
    assert message in capsys.readouterr().err


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
