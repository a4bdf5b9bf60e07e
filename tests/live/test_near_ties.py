"""Greedy outputs may differ from plain decoding's where two tokens are nearly level, and nowhere else."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from specsim.live.near_ties import MOST_NOISE, NearTieGate, check_near_ties
from tests.live.drafters.scripted import as_drafter, wobbled
from tests.live.engine.engines import DRAFTERS, some_prompts, table
from tests.live.engine.mutants import MUTANTS

SPECS = ("fixed_depth@wobbled", "dcut@ucb1")
PROMPTS = some_prompts(lengths=(5, 17, 1, 9), high=50)
FAULTS = (
    "rows of a batch swapped",
    "anchor fed one place too early",
    "drafts read one place too early",
    "following token written one place too late",
)
"""Of the engine, between its passes."""


@pytest.fixture(scope="module")
def tiny(make_target):
    """A target without a stop token, in some dtype."""
    return lambda dtype: replace(make_target(dtype, vocab_size=50, eos_token_id=None), tokenizer=None)


@pytest.fixture(scope="module")
def level(tiny):
    """A bfloat16 target whose tokens come in pairs that are nearly level."""
    target = tiny("bfloat16")
    head = target.model.get_output_embeddings().weight.data
    noise = torch.randn(head[::2].shape, generator=torch.Generator().manual_seed(0))
    head[1::2] = (head[::2].float() * (1 + 0.001 * noise)).to(head.dtype)
    return target


def check(target, specs=SPECS, prompts=PROMPTS, max_tokens=40):
    """Prompt lookup, and a model that is near the target, draft."""
    near = wobbled(target)

    def arms(setup, depth):
        return [DRAFTERS["ngram"](setup, depth), as_drafter(near)(setup, depth)]

    prices = table(("ngram", near.name))
    return check_near_ties(target, prompts, specs, arms, prices, depth=4, max_tokens=max_tokens)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_in_full_precision_nothing_differs_and_the_noise_is_rounding(tiny, dtype):
    for found in check(tiny(dtype), max_tokens=16):
        assert found.ok, found.faults
        assert found.num_accepted > 5
        assert not found.differences
        assert not found.flips
        assert 0 < max(found.noise.values()) < {"float32": 1e-4, "float64": 1e-12}[dtype]
        assert found.num_positions == sum(found.positions.values()) == 4 * 16


def test_in_bfloat16_what_differs_is_a_near_tie(level):
    found = check(level)
    assert any(each.differences for each in found)
    assert any(each.flips for each in found)
    for each in found:
        assert each.ok, each.faults
        assert each.num_accepted > 10
        assert 0 < max(each.noise.values()) < MOST_NOISE * each.spread
        flips = {(flip.request, flip.position): flip.gap for flip in each.flips}
        assert all(flip.near_tie and 0 < flip.gap <= 2 * flip.noise for flip in each.flips)
        for difference in each.differences:
            assert difference.plain_token != difference.other_token
            assert difference.gap == flips.get((difference.request, difference.position), 0.0)
        compared = sum(each.positions.values())
        equal = sum(difference.gap == 0 for difference in each.differences)
        assert compared == each.num_positions - len(each.flips) - equal


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_engine_is_no_near_tie(tiny, monkeypatch, name, dtype):
    MUTANTS[name].apply(monkeypatch)
    found = check(tiny(dtype), ["fixed_depth@wobbled"], max_tokens=12)
    assert not found[0].ok


def test_noise_beyond_rounding_is_a_fault(tiny, monkeypatch):
    """A kernel that is wrong in passes of drafts only makes its own noise, which must not excuse it."""
    from specsim.live.runner import ModelRunner

    honest = ModelRunner._eager

    def spoiled(runner, slots, starts, counts, size, keep):
        out = honest(runner, slots, starts, counts, size, keep)
        if size <= 8 or keep is not None:
            return out
        lowest = out.logits.argmin(-1, keepdim=True)
        return replace(out, logits=out.logits.scatter(-1, lowest, -20.0))  # no token comes out differently

    monkeypatch.setattr(ModelRunner, "_eager", spoiled)
    found = check(tiny("float32"), ["fixed_depth@wobbled"], max_tokens=12)
    assert not found[0].differences
    assert any("standard deviations" in fault for fault in found[0].faults)


def test_a_fault_of_plain_decoding_is_no_near_tie(tiny, monkeypatch):
    honest = NearTieGate.__post_init__

    def spoiled(gate):
        honest(gate)
        gate.plain[1][3] = (gate.plain[1][3] + 1) % 50

    monkeypatch.setattr(NearTieGate, "__post_init__", spoiled)
    found = check(tiny("float32"), ["fixed_depth@wobbled"], max_tokens=8)[0]
    assert [(each.request, each.position, each.gap) for each in found.differences] == [(1, 3, 0.0)]
    assert len(found.faults) == 1
    assert "request 1, output position 3: plain decoding's token" in found.faults[0]


def test_passes_that_were_taken_again_leave_the_engine_idle(tiny, monkeypatch):
    honest, held = NearTieGate.check, []

    def checked(gate, spec):
        found = honest(gate, spec)
        held.append(gate.setup.pool.used)
        return found

    monkeypatch.setattr(NearTieGate, "check", checked)
    check(tiny("float32"), max_tokens=4)
    assert held == [0, 0]


def test_the_report_counts_what_was_compared(level):
    found = check(level, ["fixed_depth@wobbled"])[0]
    report = json.loads(json.dumps(found.report()))
    assert report["positions"] == 4 * 40
    assert report["requests"] == 4
    assert report["differing_requests"] == len(found.differences) == len(report["first_differences"])
    assert report["differing_share"] == len(found.differences) / 4
    assert report["near_ties"] == len(found.flips)
    assert report["largest_gap"] <= 2 * report["largest_noise"]
    assert report["largest_gap_in_noise"] <= 2
    assert set(report["noise_by_shape"]) == {str(shape) for shape in found.noise}


def test_prompts_in_pieces_and_of_different_lengths_are_taken_again(tiny):
    rng = np.random.default_rng(1)
    prompts = [rng.integers(1, 50, length) for length in (70, 1, 33, 2)]
    assert check(tiny("float64"), ["fixed_depth@ngram"], prompts, 8)[0].ok


def test_the_script_says_what_it_found(monkeypatch, capsys, tmp_path):
    scripts = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(str(scripts))
    monkeypatch.setattr(sys, "argv", ["h200_near_ties.py", "--tiny", "--out", str(tmp_path)])
    spec = importlib.util.spec_from_file_location("h200_near_ties", scripts / "h200_near_ties.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.run() == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert json.loads((tmp_path / "h200_near_ties.json").read_text()) == result
    assert result["ok"]
    assert [each["controller"] for each in result["controllers"]] == ["dcut@ucb1", "fixed_depth:depth=7@ngram"]
    assert all(each["positions"] == result["prompts"] * result["tokens"] for each in result["controllers"])
