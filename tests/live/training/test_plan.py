"""A plan trains one drafter after the other, writes what it has, and loses none to another's failure."""

import json
import time
from dataclasses import replace

import pytest
import torch

from specsim.errors import InputError
from specsim.live.drafters.checkpoints import load_drafter, unpack
from specsim.live.training import plan as module
from specsim.live.training.card import Origin, started_from
from specsim.live.training.plan import Session, run_plan
from specsim.live.training.recipe import Recipe, read_plan


@pytest.fixture
def session(target, data, make_data, tmp_path):
    origin = Origin("tiny rows", "tiny held-out rows", "CPU", "Apache-2.0", "a command")
    held_out = make_data(rows=4, seed=7)
    return Session(target, data, held_out, origin, tmp_path, 60.0, time.monotonic(), steps=2)


def test_each_drafter_is_written_with_config_card_and_results(session, recipes):
    plan = [recipes["eagle"], replace(recipes["block"], domains=("code",))]
    results = run_plan(plan, session)
    assert json.loads((session.out / "results.json").read_text()) == results
    for name in ("eagle", "block"):
        net = load_drafter(session.out / name)
        assert net.fc.weight.dtype == torch.bfloat16
        card = (session.out / name / "README.md").read_text()
        for text in ("tiny rows", "2 steps", "seed 0", "CPU", "Apache-2.0", "| all | 4 |", "`a command`"):
            assert text in card, text
        notes = json.loads((session.out / name / "config.json").read_text())["specsim"]
        assert (notes["target"], notes["target_hash"], notes["steps"]) == ("tiny", "0" * 64, 2)
        assert set(results[name]["evaluation"]) == {"chat", "code", "math", "all"}
    assert "domains | code |" in (session.out / "block/README.md").read_text()
    assert not list(session.out.glob("*.state"))


def test_the_card_names_the_drafter_that_training_began_with_and_no_folder_it_lies_in(session, recipes, monkeypatch):
    run_plan([replace(recipes["eagle"], name="first")], replace(session, held_out=None))
    monkeypatch.chdir(session.out / "first")
    for place, init in enumerate([session.out / "first", ".", "../first"]):
        run_plan([replace(recipes["eagle"], name=str(place), init=str(init))], replace(session, held_out=None))
        assert "| started from | first |" in (session.out / str(place) / "README.md").read_text(), init


def test_a_drafter_of_the_hub_is_named_in_full_on_the_card():
    assert [started_from(init) for init in ("someone/head", "")] == ["someone/head", "random weights"]


def test_a_drafter_that_fails_costs_the_others_nothing(session, recipes):
    plan = [replace(recipes["block"], mask_token=10**6), recipes["eagle"]]
    results = run_plan(plan, session)
    assert results["block"] == {"error": results["block"]["error"]}
    assert "mask_token 1000000" in results["block"]["error"]
    assert results["eagle"]["steps"] == 2
    assert not (session.out / "block").exists()


def test_flat_files_hold_all_that_a_folder_holds(session, recipes):
    run_plan([recipes["eagle"]], replace(session, flat=True))
    assert sorted(file.name for file in session.out.iterdir()) == ["eagle.safetensors", "results.json"]
    unpack(session.out / "eagle.safetensors", session.out / "eagle")
    assert load_drafter(session.out / "eagle").config.feature_layers == recipes["eagle"].features
    assert "## Evaluation" in (session.out / "eagle/README.md").read_text()


def test_a_resumed_plan_leaves_out_what_is_there_and_tries_again_what_failed(session, recipes):
    run_plan([replace(recipes["block"], mask_token=10**6), recipes["eagle"]], session)
    written = (session.out / "eagle/model.safetensors").stat().st_mtime_ns
    results = run_plan([recipes["block"], recipes["eagle"]], replace(session, resume=True))
    assert (session.out / "eagle/model.safetensors").stat().st_mtime_ns == written
    assert results["block"]["steps"] == results["eagle"]["steps"] == 2


def test_time_is_shared_out_and_what_one_leaves_goes_to_the_next(session, recipes, monkeypatch):
    monkeypatch.setattr(module.time, "monotonic", lambda: session.began_at + 100)
    session = replace(session, seconds=100 + 2 * module.CLOSING_SECONDS + 90)
    plan = [replace(recipes["eagle"], share=2), replace(recipes["block"], share=1)]
    assert module._seconds(plan, session) == pytest.approx(60)
    assert module._seconds(plan[1:], session) == pytest.approx(90 + module.CLOSING_SECONDS)


def test_one_drafter_is_written_to_the_folder_itself(session, recipes):
    run_plan([recipes["eagle"]], replace(session, single=True, held_out=None))
    assert load_drafter(session.out).config.num_features == 3
    assert "Not evaluated." in (session.out / "README.md").read_text()
    with pytest.raises(InputError, match="flat"):
        replace(session, single=True, flat=True)


def test_a_plan_is_read_and_its_mistakes_are_named(tmp_path):
    file = tmp_path / "plan.json"
    file.write_text('[{"name": "a", "kind": "block", "features": [1, 2], "share": 3}]')
    assert read_plan(file) == (Recipe("a", "block", features=(1, 2), share=3),)
    for text, message in [
        ("{}", "must be a list of objects"),
        ('[{"name": "a", "depth": 3}]', "unknown key 'depth'; allowed are name, kind"),
        ('[{"name": "a", "ffn": "3"}]', "ffn is '3'; must be of type int"),
        ('[{"kind": "eagle"}]', "has no name"),
        ('[{"name": "a"}, {"name": "a"}]', "two drafters have one name"),
        ('[{"name": "a", "kind": "tree"}]', "kind 'tree'; must be one of block, eagle"),
        ('[{"name": "a", "layers": 0}]', "layers 0; must be at least 1"),
        ("nothing", "not a plan in JSON"),
    ]:
        file.write_text(text)
        with pytest.raises(InputError, match=message):
            read_plan(file)
