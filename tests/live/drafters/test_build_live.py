"""Drafters of a live engine by name."""

import logging
from dataclasses import replace

import pytest

from specsim.live.drafters.build_live import build_live_drafter
from specsim.live.drafters.live_early_exit import LiveEarlyExit
from specsim.live.drafters.live_model import LiveModel
from specsim.live.drafters.live_ngram import LiveNgram
from specsim.live.engine import Engine, LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.models import load_model
from specsim.live.sampling import SamplingParams
from specsim.policies.build import build_controller
from specsim.serving import EngineConfig
from tests.live.drafters.scripted import LIMITS
from tests.live.engine.engines import refusal, table

logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def target(model_folder):
    return load_model(str(model_folder))


@pytest.fixture
def setup(target):
    return LiveSetup(target, EngineConfig(**LIMITS), 5, EngineOptions())


@pytest.mark.parametrize(
    ("name", "kind", "arm", "law"),
    [
        ("ngram", LiveNgram, "ngram", "point_mass"),
        ("exit2", LiveEarlyExit, "exit2", "point_mass"),
        ("exit3:sampled", LiveEarlyExit, "exit3", "sampled"),
        ("model={}", LiveModel, "tiny-llama", "point_mass"),
        ("model={}:sampled", LiveModel, "tiny-llama", "sampled"),
    ],
)
def test_a_name_stands_for_a_drafter_that_an_engine_runs(setup, model_folder, name, kind, arm, law):
    drafter = build_live_drafter(name.format(model_folder), setup, 3)
    assert isinstance(drafter, kind)
    assert (drafter.spec.name, drafter.spec.law, drafter.spec.max_depth) == (arm, law, 3)
    assert drafter.score_source
    controller = build_controller("fixed_depth", [drafter.spec], live=True)
    engine = Engine(setup, [drafter], controller, table([arm]), EngineConfig(**LIMITS))
    request = engine.submit([5, 6, 7, 5, 6], SamplingParams(max_tokens=6, ignore_eos=True))
    engine.run()
    assert len(request.token_ids) == 6
    if kind is LiveModel and law == "point_mass":  # drafter and target are the same model
        assert engine.tally.finish().num_accepted == 4


def test_a_drafter_runs_in_the_targets_dtype_unless_told_otherwise(target, model_folder):
    wide = LiveSetup(load_model(str(model_folder), dtype="float64"), EngineConfig(**LIMITS), 5, EngineOptions())
    for options, dtype in (({}, "float64"), ({"dtype": "float32"}, "float32")):
        drafter = build_live_drafter(f"model={model_folder}", wide, 3, **options)
        assert str(drafter._runner.model.dtype) == str(drafter._runner.kv.keys[0].dtype) == f"torch.{dtype}"


@pytest.mark.parametrize("name", ["", "exit", "exit0", "exit2:drawn", "model=", "model=:sampled", "Ngram", "tiny"])
def test_any_other_name_is_refused_with_those_there_are(setup, name):
    assert "must be 'ngram', 'exitL' with L layers of the target" in refusal(lambda: build_live_drafter(name, setup, 3))


def test_what_cannot_be_built_is_refused_in_words(setup, target, tmp_path):
    cases = {
        "ngram:sampled": "copied tokens are drawn from no law; use 'ngram'",
        "exit4": "an early exit is at layer 1 to 3",
        f"model={tmp_path}": "not a model directory",
    }
    for name, words in cases.items():
        assert words in refusal(lambda name=name: build_live_drafter(name, setup, 3))
    for depth in (0, 6):
        assert "must be from 1 to the engine's lookahead, 5" in refusal(
            lambda depth=depth: build_live_drafter("ngram", setup, depth)
        )


def test_a_model_of_another_vocabulary_is_refused(target, model_folder):
    class Others:
        def get_vocab(self):
            return {"x": 0}

    foreign = replace(target, tokenizer=Others(), tokenizer_hash="another")
    setup = LiveSetup(foreign, EngineConfig(**LIMITS), 5, EngineOptions())
    message = refusal(lambda: build_live_drafter(f"model={model_folder}", setup, 3))
    assert "have different tokenizers" in message
