"""The scripts that measure trained drafters run, small, and what they say is true of their runs."""

import importlib.util
import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from specsim.cost import CostTable
from specsim.errors import InputError

SCRIPTS = Path(__file__).parents[2] / "benchmarks"
DCUT = "dcut:ratios=all,numerator=bonus"


@pytest.fixture
def script(monkeypatch):
    """A script as a module, told its command line."""

    def load(name, *arguments):
        monkeypatch.syspath_prepend(str(SCRIPTS))
        monkeypatch.setattr(sys, "argv", [str(SCRIPTS / f"{name}.py"), *map(str, arguments)])
        spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def on_h200(script, tmp_path, capsys):
    """Run h200_drafters, tiny: one batch, few policies."""

    def run(*arguments, fixed=("fixed_depth:depth=3",)):
        module = script("h200_drafters", "--tiny", "--out", tmp_path, "--alone", "eagle-general", *arguments)
        module.FIXED, module.EXACT_FORMS = fixed, ()
        module.TINY = module.TINY | {"batches": (1,)}
        assert sys.modules["replay_run"].command(module.main, "", **module.OPTIONS) == 0
        result = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert json.loads((tmp_path / "h200_drafters.json").read_text()) == result
        return result

    return run


def test_every_run_is_taken_again_and_peers_decode_the_same(on_h200):
    result = on_h200(fixed=("fixed_depth:depth=99", "fixed_depth:depth=3"))
    told = [(cell["policy"], ",".join(cell["drafters"])) for cell in result["cells"]]
    everyone = "eagle-general,block-general,ngram"
    assert told == [
        ("autoregressive", "ngram"),
        ("fixed_depth:depth=3", "eagle-general"),
        (DCUT, "eagle-general"),
        (f"{DCUT}@ucb1:reward=throughput", everyone),
        (f"{DCUT},depth=goodput", "eagle-general"),
        (f"{DCUT},depth=goodput@ucb1:reward=throughput", everyone),
        (f"{DCUT}@thompson_gaussian", everyone),
        (DCUT, "ngram"),
    ]
    (left_out,) = result["left_out"]
    assert "depth 99 is deeper than any drafter goes" in left_out  # and cost the others nothing
    for cell in result["cells"]:
        assert cell["parity"]["complete"]
        assert cell["parity"]["difference"] is None
        slower = cell["parity"]["predicted_over_measured_seconds"]
        assert slower * cell["parity"]["predicted_tokens_per_second"] == pytest.approx(
            cell["tokens_per_second"], rel=0.01
        )
        assert cell["tokens"] > 0
        assert sum(cell["arm_shares"].values()) == pytest.approx(1, abs=1e-3)
        assert cell["tokens_per_second"] == pytest.approx(cell["tokens"] / cell["seconds"], rel=0.01)
    plain, fixed = result["cells"][:2]
    assert (plain["mean_acceptance_length"], plain["arm_shares"]) == (1.0, {"plain": 1.0})
    assert fixed["arm_shares"] == {"eagle-general": 1.0}
    assert 0 < fixed["drafted_a_request"] <= 3
    assert result["parity"] == {"runs": 8, "taken_again": 8, "different": 0}
    assert [peer["peer"] for peer in result["peers"]] == ["transformers", "transformers, prompt lookup", "flashspec"]
    for peer in result["peers"][:2]:
        assert peer["outputs_equal_to_the_engines"] == peer["compared"] == peer["requests"] > 0
    assert "error" in result["peers"][2] or result["peers"][2]["tokens_per_second"] > 0


def test_a_library_that_fails_and_a_run_that_fails_cost_the_others_nothing(script, tmp_path, capsys):
    module = script("h200_drafters", "--tiny", "--out", tmp_path, "--alone", "eagle-general")
    module.FIXED, module.EXACT_FORMS, module.TINY = (), (), module.TINY | {"batches": (1,)}
    measure = module.Arms.measure

    def fail(*_):
        raise AttributeError("no such cache")

    def fail_once(self, policy, *arguments):
        if policy == DCUT:
            raise RuntimeError("out of memory")
        return measure(self, policy, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.Arms, "measure", fail_once)
        patch.setattr(module, "by_transformers", fail)
        assert sys.modules["replay_run"].command(module.main, "", **module.OPTIONS) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [peer["error"] for peer in result["peers"][:2]] == ["AttributeError: no such cache"] * 2
    assert result["left_out"][0] == f"batch 1: {DCUT} with eagle-general: out of memory"
    assert result["parity"]["runs"] == result["parity"]["taken_again"] == len(result["cells"]) == 5


def test_a_table_that_somebody_else_measures_is_waited_for(on_h200, tmp_path):
    own = on_h200("--table-name", "mine", "--minutes", "0")
    assert (own["table"], own["table_cells"]) == ("mine", len(CostTable.open(tmp_path / "mine").cells))
    there = on_h200("--table", tmp_path / "mine", "--wait", "60", "--table-name", "none", "--minutes", "1")
    assert there["table"] == "mine"
    assert not (tmp_path / "none").exists()
    assert there["cells"][0]["policy"] == "autoregressive"
    everyone = ["eagle-general", "block-general", "ngram"]
    assert sorted(name for one in there["captures"] for name in one["drafters"]) == sorted(everyone)
    assert list(there)[:4] == ["tiny", "date", "captures", "peers"]  # what was done before the table was there
    in_vain = on_h200("--table", tmp_path / "nowhere", "--wait", "0.1", "--table-name", "other", "--minutes", "0.1")
    assert in_vain["table"] == "other"


def test_what_the_time_does_not_allow_is_named(on_h200):
    result = on_h200("--minutes", "0")
    assert "cells" not in result
    assert result["left_out"][0] == "batch 1: autoregressive with ngram"
    assert len(result["left_out"]) == 8
    assert result["parity"] == {"runs": 0, "taken_again": 0, "different": 0}


def jobs_of_peers():
    jobs = {"model": str(SCRIPTS / "tiny-llama.json"), "dtype": "float32", "device": "cpu", "load_format": "dummy"}
    return jobs | {"prompts": [[1, 2]], "limits": [2], "seconds": 1.0}


def test_flashspec_that_fails_is_an_error_in_words(script, tmp_path):
    module = script("drafter_peers")
    (tmp_path / "flashspec.py").write_text("raise RuntimeError('not on this machine')\n")
    found = module.FlashspecApart(jobs_of_peers(), tmp_path, str(tmp_path)).result(60.0, 60.0)
    assert found == {"error": "ended with code 1: RuntimeError: not on this machine"}


def test_flashspec_that_takes_too_long_is_ended(script, tmp_path):
    module = script("drafter_peers")
    peer = module.FlashspecApart(jobs_of_peers(), tmp_path, str(tmp_path))
    assert peer.result(0.0, 60.0)["error"].startswith("had not loaded and compiled after")
    assert peer._process.poll() is not None
    again = module.FlashspecApart(jobs_of_peers(), tmp_path, str(tmp_path))
    again._ready.touch()  # as if it had compiled, and then did not come to an end
    assert again.result(60.0, 0.0) == {"error": "had not decoded after 0 s"}
    assert again._process.poll() is not None


def test_flashspec_decodes_once_it_is_told_to(script, tmp_path):
    module = script("drafter_peers")
    (tmp_path / "flashspec").mkdir()
    (tmp_path / "flashspec" / "__init__.py").write_text(STAND_IN)
    (tmp_path / "flashspec" / "engine.py").write_text("NgramDrafter = TargetModel = lambda *_, **__: None\n")
    peer = module.FlashspecApart(jobs_of_peers(), tmp_path, str(tmp_path))
    while peer._process.poll() is None and not peer._ready.exists():
        time.sleep(0.05)
    assert peer._process.poll() is None  # it is ready, and waits
    found = peer.result(60.0, 60.0)
    assert found["outputs"] == [[7, 7]]
    assert found["how"] == "compiled: False (made up)"


STAND_IN = """
import torch
from types import SimpleNamespace
BanditConfig = FlashSpecConfig = SamplingConfig = lambda **_: None
class SpeculativeEngine:
    compiled, compile_decision = False, SimpleNamespace(reason="made up")
    def __init__(self, *_): pass
    def generate(self, ids, max_new_tokens):
        return SimpleNamespace(output_ids=torch.full((1, max_new_tokens), 7), n_tokens_generated=max_new_tokens)
"""


def test_rounds_on_a_cpu_take_the_same_steps(script, tmp_path, capsys):
    file = tmp_path / "cpu.json"
    module = script("cpu_drafters", "--tiny", "--alone", "block-general", "--out", file)
    assert module.main() == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert json.loads(file.read_text()) == result
    assert [(cell["policy"], cell["drafter"]) for cell in result["cells"]] == [
        ("autoregressive", ""),
        (DCUT, "block-general"),
        (f"{DCUT},depth=goodput", "block-general"),
        ("fixed_depth:depth=15", "block-general"),
        (f"{DCUT},depth=goodput", "ngram"),
        (f"{DCUT},depth=goodput@ucb1:reward=throughput", "all"),
    ]
    for cell in result["cells"]:
        assert len(cell["rounds"]) == 2
        assert cell["differences"] == []
        assert cell["same_tokens_every_round"]
        assert cell["error"] == pytest.approx(
            cell["predicted_tokens_per_second"] / cell["tokens_per_second"] - 1, abs=1e-3
        )
    assert result["cells"][0]["speedup"] == result["cells"][0]["predicted_speedup"] == 1.0


def test_a_drafter_that_is_not_there_is_named(script):
    with pytest.raises(InputError, match="eagle-of-nowhere"):
        script("cpu_drafters", "--tiny", "--alone", "eagle-of-nowhere").main()


@pytest.mark.parametrize("fails", [True, False])
def test_a_rehearsal_gives_the_slots_back_whatever_happens(script, monkeypatch, fails):
    """Otherwise every run behind one that cannot be is refused, too."""
    module, done = script("drafter_run"), []
    engine = SimpleNamespace(step=lambda settled: done.append("step"))
    loop = SimpleNamespace(stop=lambda: done.append("stopped"))

    def warmed_up(self, engine, batch):
        if fails:
            raise InputError("no room")

    monkeypatch.setattr(module.Arms, "engine", lambda *asked: (engine, loop))
    monkeypatch.setattr(module.Arms, "_warmed_up", warmed_up)
    with pytest.raises(InputError, match="no room") if fails else nullcontext():
        module.Arms(None, None, []).rehearse("dcut:depth=goodput", 8, None)
    assert done == ["step"] * (0 if fails else module.REHEARSED) + ["stopped"]


def test_whether_peers_are_run_is_yes_or_no(script, tmp_path, capsys):
    module = script("h200_drafters", "--tiny", "--out", tmp_path, "--peers", "on")
    with pytest.raises(SystemExit) as refused:
        sys.modules["replay_run"].command(module.main, "", **module.OPTIONS)
    assert refused.value.code == 2
    assert "invalid choice: 'on'" in capsys.readouterr().err
