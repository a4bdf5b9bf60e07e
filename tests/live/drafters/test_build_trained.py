"""Trained drafters by name, live and for recordings: what each name builds, and one line for what none of them can."""

import json
import logging
from dataclasses import replace
from functools import partial

import pytest

from specsim.live.drafters import build_drafter
from specsim.live.drafters.build_live import build_live_drafter
from specsim.live.drafters.checkpoints import save_drafter
from specsim.live.drafters.live_block import LiveBlock
from specsim.live.drafters.live_eagle import LiveEagle
from specsim.live.drafters.trained_everywhere import TrainedEverywhere
from specsim.live.engine import LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.profiler import ProfileOptions, profile
from specsim.live.prompts import Prompt
from specsim.live.sampling import SamplingParams
from specsim.live.session import LiveSession
from specsim.live.session_config import SessionConfig, Weights
from specsim.serving import EngineConfig
from specsim.shipped import shipped_names
from tests.live.drafters.scripted import LIMITS
from tests.live.drafters.trained import block_net, eagle_net, trained_engine
from tests.live.engine.engines import generate, refusal

LOOKAHEAD = 7


@pytest.fixture(scope="module")
def target(make_target):
    return make_target()


@pytest.fixture
def setup(target):
    return LiveSetup(target, EngineConfig(**LIMITS), LOOKAHEAD, EngineOptions())


@pytest.fixture(scope="module")
def models(target, tmp_path_factory):
    """A working directory whose `models/` holds two trained drafters."""
    folder = tmp_path_factory.mktemp("clone") / "models"
    save_drafter(eagle_net(target), folder / "eagle-tiny", notes={"target": "tiny", "target_hash": target.model_hash})
    save_drafter(block_net(target), folder / "block-tiny")
    return folder


def test_each_name_builds_its_drafter(setup, models, monkeypatch):
    monkeypatch.chdir(models.parent)
    built = {
        f"drafter={models / 'eagle-tiny'}": (LiveEagle, "eagle-tiny", "point_mass"),
        "drafter=models/block-tiny:sampled": (LiveBlock, "block-tiny", "sampled"),
        "eagle-tiny": (LiveEagle, "eagle-tiny", "point_mass"),
        "block-tiny:sampled": (LiveBlock, "block-tiny", "sampled"),
    }
    for name, (kind, arm, law) in built.items():
        drafter = build_live_drafter(name, setup, 3)
        assert (type(drafter), drafter.spec.name, drafter.spec.law, drafter.spec.max_depth) == (kind, arm, law, 3)
    assert set(shipped_names("model")) >= {"block-tiny", "eagle-tiny"}


def test_the_depth_is_the_lookahead_unless_told_and_a_block_has_its_own_limit(setup, models):
    assert build_live_drafter("ngram", setup).spec.max_depth == LOOKAHEAD
    assert build_live_drafter(f"drafter={models / 'eagle-tiny'}", setup).spec.max_depth == LOOKAHEAD
    assert build_live_drafter(f"drafter={models / 'block-tiny'}", setup, 7).spec.max_depth == 5
    assert build_live_drafter(f"drafter={models / 'block-tiny'}", setup, 2).spec.max_depth == 2
    for depth in (0, 8):
        assert "must be from 1 to the engine's lookahead, 7" in refusal(
            lambda depth=depth: build_live_drafter("ngram", setup, depth)
        )


def test_what_cannot_be_built_is_refused_in_one_line(setup, models, monkeypatch):
    monkeypatch.chdir(models.parent)
    told = {
        "medusa": "drafter 'medusa': must be 'ngram', 'exitL'",
        "drafter=": "drafter 'drafter=': must be",
        "drafter=./nowhere": "./nowhere: no such drafter folder (a hub id is owner/name)",
        "drafter=eagle-tiny": "(the drafter that ships is named eagle-tiny, without drafter=)",
        "drafter=models": "models: not a drafter (config.json is missing)",
    }
    for name, words in told.items():
        message = refusal(lambda name=name: build_live_drafter(name, setup, 3))
        assert words in message
        assert "\n" not in message
    assert "the name of a drafter that ships (" in refusal(lambda: build_live_drafter("medusa", setup, 3))
    assert "eagle-tiny" in refusal(lambda: build_live_drafter("medusa", setup, 3))


def test_a_drafter_of_another_target_is_refused(make_target, models):
    narrow = make_target(hidden_size=24)
    setup = LiveSetup(narrow, EngineConfig(**LIMITS), LOOKAHEAD, EngineOptions())
    for name in ("eagle-tiny", "block-tiny"):
        expected = f"drafter '{name}' was made for a target with hidden states of 48; 'tiny' has 24"
        assert refusal(lambda name=name: build_live_drafter(f"drafter={models / name}", setup, 3)) == expected
        assert refusal(lambda name=name: build_drafter(f"drafter={models / name}", narrow, 3)) == expected


def test_other_weights_than_it_was_trained_for_are_told_and_allowed(setup, target, models, tmp_path, caplog):
    file = save_drafter(eagle_net(target), tmp_path / "head", notes={"target": "other", "target_hash": "ab" * 32})
    assert json.loads((file.parent / "config.json").read_text())["specsim"]["target"] == "other"
    with caplog.at_level(logging.WARNING):
        build_live_drafter(f"drafter={models / 'eagle-tiny'}", setup, 3)
        assert not caplog.records
        build_live_drafter(f"drafter={file.parent}", setup, 3)
    assert "drafter 'head' was trained for other (weights abababababab)" in caplog.text


@pytest.mark.parametrize("name", ["eagle-tiny", "block-tiny"])
def test_a_loaded_drafter_drafts_in_an_engine(target, models, name):
    engine, watcher = trained_engine(
        target, [lambda setup, depth: build_live_drafter(f"drafter={models / name}", setup, depth)], [3]
    )
    generate(engine, [[5, 6, 7]], SamplingParams(8, ignore_eos=True))
    assert sum(int(step.seen.num_drafts.sum()) for step, _, _ in watcher.steps if step.seen) > 6


def test_recordings_build_trained_drafters_by_the_same_names(target, models, monkeypatch):
    monkeypatch.chdir(models.parent)
    for name, arm, law in (
        ("eagle-tiny", "eagle-tiny", "point_mass"),
        ("block-tiny:sampled", "block-tiny", "sampled"),
        ("drafter=models/eagle-tiny", "eagle-tiny", "point_mass"),
    ):
        drafter = build_drafter(name, target, 4)
        assert isinstance(drafter, TrainedEverywhere)
        assert (drafter.spec.name, drafter.spec.law, drafter.spec.max_depth) == (arm, law, 4)
    assert build_drafter("eagle-tiny", target, 4, "sampled").spec.law == "sampled"
    assert build_drafter("ngram", target, 4, "sampled").spec.law == "point_mass"
    assert "only trained drafters are recorded with drawn drafts" in refusal(
        lambda: build_drafter("exit2", target, 4, "sampled")
    )
    live = LiveSetup(target, EngineConfig(**LIMITS), LOOKAHEAD, EngineOptions())
    for name in ("eagle-tiny", "block-tiny:sampled"):
        assert build_drafter(name, target, 4).spec == build_live_drafter(name, live, 4).spec


def test_a_profile_measures_a_block_drafter_at_its_own_greatest_depth(make_target, models):
    target = make_target(max_position_embeddings=512)
    maker = partial(build_live_drafter, f"drafter={models / 'block-tiny'}", depth=7)
    head = partial(build_live_drafter, f"drafter={models / 'eagle-tiny'}", depth=7)
    options = ProfileOptions(batches=(1, 2), contexts=(16,), max_tokens=16, depth=7, repeats=1)
    cells = profile(target, [maker, head], options).cells
    depths = {
        name: [cell.depth for cell in cells if (cell.phase, cell.batch, cell.drafter) == ("draft", 2, name)]
        for name in ("block-tiny", "eagle-tiny")
    }
    assert depths == {"block-tiny": [1, 2, 3, 5], "eagle-tiny": [1, 2, 3, 7]}
    assert {cell.drafter for cell in cells if cell.phase == "switch"} == {"block-tiny", "eagle-tiny"}


def test_a_session_runs_shipped_drafters_by_name(model_folder, target, models, monkeypatch, tmp_path):
    from specsim.cost.examples import linear_table

    monkeypatch.chdir(models.parent)
    prices = linear_table(1e-3, 2e-4, (1, 1024), drafters=dict.fromkeys(("ngram", "eagle-tiny", "block-tiny"), 2e-4))
    weights = Weights(str(model_folder))
    names = ("ngram", "eagle-tiny", "drafter=models/block-tiny")
    config = SessionConfig(
        weights, names, "fixed_depth@round_robin", prices, depth=7, sampling=SamplingParams(12, ignore_eos=True)
    )
    session = LiveSession(config, [Prompt(1, "chat", "abc abc"), Prompt(2, "chat", "hello")])
    assert [(spec.name, spec.max_depth) for spec in session.controller.drafters] == [
        ("ngram", 7), ("eagle-tiny", 7), ("block-tiny", 5)
    ]  # fmt: skip
    result = session.run()
    assert [len(request.token_ids) for request in result.requests] == [12, 12]
    assert "a drafter that ships (" in refusal(
        lambda: LiveSession(replace(config, drafters=("eagle-huge",)), [Prompt(1, "chat", "abc")])
    )
