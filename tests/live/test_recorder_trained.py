"""Recordings of trained drafters, and of paths that are drawn: valid traces that say what a live run does."""

import numpy as np
import pytest

from specsim.cli.main import run
from specsim.errors import InputError
from specsim.live.drafters import build_drafter
from specsim.live.drafters.checkpoints import save_drafter
from specsim.live.prompts import read_prompts
from specsim.live.recorder import RecordOptions, record
from specsim.live.sampling import SamplingParams
from specsim.policies.build import build_controller
from specsim.trace import Trace
from tests.live.drafters.trained import as_arm, block_net, eagle_net, trained_engine
from tests.live.engine.engines import generate

DEPTH, LENGTH = 4, 16
HOT = RecordOptions(max_new_tokens=LENGTH, batch_size=4, temperature=1.2, seed=3)
GREEDY = RecordOptions(max_new_tokens=LENGTH, batch_size=4)


@pytest.fixture(scope="module")
def target(make_target):
    return make_target(seed=5)


@pytest.fixture(scope="module")
def nets(target):
    return {"eagle": eagle_net(target), "block": block_net(target)}


@pytest.fixture(scope="module")
def folders(nets, tmp_path_factory):
    """The drafters on disk, in the target's precision."""
    import torch

    out = tmp_path_factory.mktemp("models")
    for name, net in nets.items():
        save_drafter(net, out / name, dtype=torch.float64)
    return out


@pytest.fixture
def files(prompt_file):
    return read_prompts([prompt_file])


def arms(folders, target, *names, law="point_mass"):
    return [
        build_drafter(name if name == "ngram" else f"drafter={folders / name}", target, DEPTH, law) for name in names
    ]


@pytest.mark.parametrize("options", [GREEDY, HOT], ids=["greedy", "drawn"])
def test_a_live_run_is_the_walk_along_the_trace(make_target, target, nets, folders, files, tmp_path, options):
    """Same seed, same prompts: outputs have the recorded lengths, and each step has the recorded block."""
    record(target, arms(folders, target, "ngram", "eagle", "block"), files, tmp_path / "t", options)
    trace = Trace.open(tmp_path / "t", verify_hashes=True)
    trace.validate()
    assert [spec.kind for spec in trace.drafters] == ["ngram", "eagle", "block"]
    prompts = [target.tokenizer.encode(prompt.text) for prompt in files[0].prompts]
    for arm, kind in ((1, "eagle"), (2, "block")):
        own = make_target(seed=5)  # an engine changes its model's attention for good
        engine, watcher = trained_engine(own, [as_arm(nets[kind])], [DEPTH], max_depth=DEPTH, seed=options.seed)
        requests = generate(engine, prompts, SamplingParams(LENGTH, options.temperature))
        lengths = [len(request.token_ids) for request in requests]
        assert lengths == trace.requests.num_output_tokens.tolist()
        assert [request.finish_reason for request in requests] == [
            record_["finish_reason"] for record_ in trace.requests.records()
        ]
        steps = 0
        for step, emission, texts in watcher.steps:
            for row, sequence in enumerate(step.context.requests):
                position = len(texts[row]) - len(prompts[sequence])
                blocks = trace.blocks(sequence, arm)
                np.testing.assert_array_equal(step.scores["drawn_prob"][row], blocks.scores["drawn_prob"][position])
                accepted = min(int(emission.num_accepted[row]), lengths[sequence] - position)
                assert accepted == blocks.num_accepted[position]
                steps += 1
        assert steps > 60


def test_drawn_drafts_are_recorded_with_their_law_and_what_that_means(target, folders, files, tmp_path):
    drafters = arms(folders, target, "ngram", "eagle", "block", law="sampled")
    manifest = record(target, drafters, files, tmp_path / "t", HOT)
    trace = Trace.open(tmp_path / "t")
    trace.validate()
    assert [spec.law for spec in trace.drafters] == ["point_mass", "sampled", "sampled"]
    assert (manifest.sampling.temperature, manifest.sampling.seed) == (1.2, 3)
    assert "a walk along the output is an estimate" in manifest.how
    assert "behind the output's prefix and the block's own earlier drafts" in manifest.how
    for arm in (1, 2):
        scores = trace.blocks(0, arm).scores
        assert set(scores) == {"drawn_prob", "max_prob", "margin", "shifted_prob"}
        assert (scores["max_prob"] >= scores["drawn_prob"] - 1e-7).all()
        assert (scores["max_prob"] > scores["drawn_prob"] + 1e-3).any()
    build_controller("dcut:score=max_prob", trace.drafters[2:], live=True)
    with pytest.raises(InputError, match="is not exact"):
        build_controller("dcut:score=drawn_prob", trace.drafters[2:], live=True)


def test_a_greedy_recording_says_nothing_of_drawn_drafts_and_has_no_seed(target, folders, files, tmp_path):
    manifest = record(target, arms(folders, target, "eagle"), files, tmp_path / "t", GREEDY)
    assert "greedy outputs" in manifest.how
    assert "estimate" not in manifest.how
    assert manifest.sampling.seed is None


def test_drawn_drafts_without_a_temperature_are_refused(target, folders, files, tmp_path):
    with pytest.raises(InputError, match="drafter 'eagle' draws its drafts: give a temperature above 0"):
        record(target, arms(folders, target, "eagle", law="sampled"), files, tmp_path / "t", GREEDY)
    with pytest.raises(InputError, match="temperature is -1"):
        record(target, arms(folders, target, "eagle"), files, tmp_path / "t", RecordOptions(temperature=-1.0))
    assert not (tmp_path / "t").exists()


def test_outputs_at_a_seed_do_not_depend_on_their_batch(target, folders, files, tmp_path):
    lengths = []
    for size in (1, 4, 9):
        options = RecordOptions(max_new_tokens=LENGTH, batch_size=size, temperature=1.2, seed=3)
        record(target, arms(folders, target, "eagle"), files, tmp_path / str(size), options)
        trace = Trace.open(tmp_path / str(size))
        lengths.append([trace.blocks(index, 0).num_accepted.tolist() for index in range(len(trace))])
    assert lengths[0] == lengths[1] == lengths[2]


def test_the_command_records_a_trained_drafter_at_a_temperature(
    model_folder, make_model, prompt_file, tmp_path, capsys
):
    from specsim.live.models import load_model

    save_drafter(eagle_net(load_model(str(model_folder))), tmp_path / "models" / "head")
    command = ["record", "--model", str(model_folder), "--prompts", str(prompt_file), "--depth", "3", "--limit", "2"]
    command += ["--max-new-tokens", "6", "--threads", "1", "--drafters", f"ngram,drafter={tmp_path / 'models/head'}"]
    drawn = ["--temperature", "0.8", "--seed", "5", "--draft-law", "sampled"]
    assert run([*command, "--out", str(tmp_path / "t"), *drawn]) == 0
    trace = Trace.open(tmp_path / "t")
    assert [(spec.name, spec.law) for spec in trace.drafters] == [("ngram", "point_mass"), ("head", "sampled")]
    capsys.readouterr()
    assert run([*command, "--out", str(tmp_path / "u"), "--draft-law", "sampled"]) == 2
    assert "give a temperature above 0" in capsys.readouterr().err
    assert run([*command, "--out", str(tmp_path / "u"), "--draft-law", "soft"]) == 2
    assert "--draft-law 'soft': must be point_mass or sampled" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_recording_on_a_gpu_is_that_on_a_cpu_but_for_rounding(make_model, tokenizer, files, tmp_path, dtype):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    from specsim.live.models import LoadedModel

    accepted = []
    for device in ("cpu", "cuda"):
        model = make_model(dtype).to(device)
        target = LoadedModel("tiny", "random weights", model, tokenizer, device, dtype, "0" * 64, "1" * 64)
        for name, net in (("eagle", eagle_net(target)), ("block", block_net(target))):
            save_drafter(net, tmp_path / device / name, dtype=torch.float32)
        for law, options in (("point_mass", GREEDY), ("sampled", HOT)):
            made = arms(tmp_path / device, target, "eagle", "block", law=law)
            record(target, made, files, tmp_path / device / law, options)
            trace = Trace.open(tmp_path / device / law)
            trace.validate()
            accepted.append([trace.requests.num_output_tokens.tolist(), trace.blocks(0, 0).num_accepted.tolist()])
    if dtype == "float32":
        assert accepted[:2] == accepted[2:]
