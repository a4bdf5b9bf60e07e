"""`specsim parity`: an exit code that can be relied on, tables that fit the terminal, JSON and nothing else."""

from __future__ import annotations

import json
import math
import re
import shutil

import pytest

from specsim.study.parity.measures import Pair
from specsim.trace import Trace
from specsim.trace.journal import REQUESTS_JOURNAL
from tests.sim.simulated_run import TRACE, edit_run, edit_steps, write_run
from tests.trace.test_journal import journalled, request, visited


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run") / "run")


@pytest.fixture
def run(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


def test_an_equal_run_ends_with_exit_code_0_and_tables_that_fit(specsim, run):
    code, out, errors = specsim("parity", run)
    assert (code, errors) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    assert out.startswith("dcut@ucb1\n")
    assert "EQUAL: the simulator takes all" in out
    assert "Seconds of a step, cost table example-staircase" in out
    assert "The run, simulated at the table's seconds\n" in out
    assert "estimate" not in out


def test_a_difference_ends_with_exit_code_1_and_is_named(specsim, run):
    edit_steps(run, lambda steps: steps["num_emitted"].__setitem__(8, 77))
    code, out, _ = specsim("parity", run)
    text = " ".join(out.split())
    assert code == 1
    assert max(map(len, out.splitlines())) <= 80
    assert "DIFFERENT at step 8: num_emitted was 77 live and is" in text
    assert "8 of" in text
    assert "Verified drafts by request in the rerun: 70" in text


def test_what_a_run_of_prompts_alone_never_had_is_a_dash(specsim, run, monkeypatch):
    unknown = [Pair("TPOT, mean", "s", math.nan, math.nan), Pair("tokens a request and step", "", math.nan, math.nan)]
    monkeypatch.setattr("specsim.study.parity.compare.outcomes", lambda *_: unknown)
    code, out, _ = specsim("parity", run)
    assert code == 0
    assert re.search(r"^TPOT, mean, ms( +–){3}$", out, re.MULTILINE)
    assert re.search(r"^tokens a request and step( +–){3}$", out, re.MULTILINE)


def test_json_is_the_whole_result_and_nothing_else(specsim, run):
    code, out, _ = specsim("parity", run, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["equal"] is True
    assert found["kind"] == "exact"
    assert found["num_equal"] == found["num_steps"]
    edit_run(run, seed=99, controller=_round_robin(run))
    code, out, _ = specsim("parity", run, "--json")
    assert code == 1
    assert json.loads(out)["difference"]["what"] == "arm"


def _round_robin(run):
    from specsim.serving.run_file import read_run_file

    section = read_run_file(run).controller.model_dump()
    section["config"]["drafter"] = {"name": "fixed_arm", "options": {"arm": 1}}
    section["state"]["drafter_policy"] = {}
    return section


def test_a_trace_of_the_same_prompts_is_taken_and_one_of_others_refused(specsim, refused, run, tmp_path):
    TRACE.write(tmp_path / "prompts")
    assert specsim("parity", run, "--trace", tmp_path / "prompts")[0] == 0
    assert "a trajectory trace does not know every position" in refused("parity", run, "--trace", run)
    assert "no such trace" in refused("parity", run, "--trace", tmp_path / "nothing")


def test_bad_input_ends_with_exit_code_2_and_one_line(refused, run, tmp_path):
    assert "allowed: a folder that a live run was recorded to" in refused("parity", tmp_path / "nothing")
    (run / "blocks.parquet").write_bytes(b"PAR1")
    assert "blocks.parquet: sha256 is" in refused("parity", run)
    edit_run(run, complete=False)
    assert "the run was cut short" in refused("parity", run)
    assert "nothing is left to be recovered" in refused("parity", run, "--recover")
    assert "--recover stands alone" in refused("parity", run, "--recover", "--json")


def test_a_damaged_journal_is_told_apart_from_one_that_was_cut_off(specsim, run, tmp_path):
    for name, hole in (("cut", ()), ("damaged", range(8))):
        folder = tmp_path / name
        _, journal = journalled(folder, 1)
        path = folder / REQUESTS_JOURNAL
        start = path.stat().st_size
        journal.append(request(2), visited())
        size = path.stat().st_size - start
        journal.append(request(3), visited())
        content = bytearray(path.read_bytes()[:-1] if name == "cut" else path.read_bytes())
        for place in hole:
            content[start + place] = 0
        path.write_bytes(content)
        shutil.copy(run / "run.json", folder)
        edit_run(folder, complete=False)
        code, out, errors = specsim("parity", folder, "--recover")
        assert (code, out) == (0, f"{folder}: a trajectory trace of the requests that had ended\n")
        assert Trace.open(folder).requests.request_id.tolist() == ([1, 2] if name == "cut" else [1, 3])
        assert errors == (
            ""
            if name == "cut"
            else f"specsim: warning: {path}: damaged in the middle, not merely cut off at its end: {size} bytes from "
            f"byte {start} on cannot be read, the 1 request behind them can\n"
        )
