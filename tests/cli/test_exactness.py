"""`specsim exactness`: a table that fits the terminal, and an exit code that can be relied on."""

import json

import pytest

from specsim.cli.main import run
from specsim.policies.exactness import Verdict

POLICIES = ["--policy", "fixed_ratio:score=drawn_prob", "--policy", "dcut:numerator=bonus,ratios=all,score=max_prob"]


def test_the_table_fits_80_columns_and_says_what_is_refused(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["exactness", *POLICIES]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    assert out.count("lossy .") == 3
    assert "5 combinations are allowed" in out
    assert "3 combinations are refused without --allow-lossy; forced, each is biased" in " ".join(out.split())


def test_json_holds_every_combination_and_nothing_else(capsys):
    assert run(["exactness", "--json", "--policy", "fixed_ratio:score=drawn_prob", "--seeds", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["law"], one["structure"], one["finding"]) for one in found] == [
        ("point_mass", "parallel", "exact"),
        ("point_mass", "autoregressive", "exact"),
        ("sampled", "parallel", "refused"),
        ("sampled", "autoregressive", "refused"),
    ]
    assert all((one["bias"] > 1e-3) == (one["finding"] == "refused") for one in found)


def test_a_contradiction_is_named_and_ends_with_exit_code_1(capsys, monkeypatch):
    monkeypatch.setattr("specsim.policies.controller.exactness", lambda *case: Verdict(exact=True))
    assert run(["exactness", "--policy", "fixed_ratio:score=drawn_prob"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "CONTRADICTION: fixed_ratio:score=drawn_prob, drafts sampled and parallel: allowed, and biased by" in out
    assert "FAULT" in out


def test_refused_options_that_leave_nothing_to_decide_are_no_fault(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("specsim.study.exactness.table.SEARCHED_SEEDS", 12)
    assert run(["exactness", "--policy", "fixed_ratio:ratio=1", "--policy", "tetris:capacity=0"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    said = " ".join(out.split())
    assert "4 combinations are refused without --allow-lossy for the score they read, though no score ever" in said
    assert "there was no bias to show" in said
    assert said.count(" idle") == 4


def test_a_bound_is_said_to_be_one(capsys):
    assert run(["exactness", "--policy", "clairvoyant"]) == 0
    assert "clairvoyant is a bound: it emits nothing, and is refused live." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "nothing"], "unknown budget policy 'nothing'"),
        (["--policy", "fixed_depth:depth=7"], "depth 7 is deeper than any drafter goes (draft at most 3)"),
        (["--seeds", "0"], "--seeds 0: allowed 1 or more"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(capsys, arguments, message):
    assert run(["exactness", *arguments]) == 2
    assert message in capsys.readouterr().err
