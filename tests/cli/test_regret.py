"""`specsim regret`: tables, files, and what it refuses."""

from __future__ import annotations

import json
import re

import pyarrow.parquet as pq
import pytest

from specsim.study.regret.result import RegretResult

SMALL = ["regret", "--steps", 120, "--seeds", 3, "--jobs", 1]


def test_it_prints_tables_within_80_columns(specsim):
    code, out, err = specsim(*SMALL, "--policy", "ucb1", "--policy", "thompson_beta")
    assert (code, err) == (0, "")
    assert "3 seeds of 120 steps" in out
    assert "Lai-Robbins" in out
    assert "loses least" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


def test_without_a_choice_every_policy_and_environment_takes_part(specsim):
    code, out, _ = specsim(*SMALL, "--json")
    result = json.loads(out)
    assert code == 0
    assert [found["name"] for found in result["environments"]] == [
        "stationary", "one_swap", "three_swaps", "slow_drift", "hidden_improvement",
    ]  # fmt: skip
    assert len({found["policy"] for found in result["regrets"]}) == 12


def test_options_reach_the_study(specsim):
    _, out, _ = specsim(
        *SMALL, "--json", "--policy", "ucb1:c=.5", "--environment", "one_swap", "--means", ".2/.9", "--seeds", "4,9",
        "--step-ms", 5, "--switch-ms", 0,
    )  # fmt: skip
    result = json.loads(out)
    assert result["seeds"] == [4, 9]
    assert [found["policy"] for found in result["regrets"]] == ["ucb1:c=.5"]
    assert result["environments"][0]["means"] == [0.2, 0.9]
    # At one price for all, a step of regret 1 costs 5 ms / (1.9 tokens a step).
    found = result["regrets"][0]
    assert found["seconds_regret"] == pytest.approx(found["regret"] * 0.005 / 1.9)


def test_the_result_says_which_command_makes_it_again(specsim):
    _, out, _ = specsim(*SMALL, "--policy", "ucb1", "--environment", "stationary", "--json")
    assert json.loads(out)["command"] == (
        "specsim regret --steps 120 --seeds 3 --jobs 1 --policy ucb1 --environment stationary --json"
    )


def test_it_writes_the_page_and_the_rows(specsim, tmp_path):
    arguments = ["--policy", "ucb1", "--environment", "stationary", "--html", tmp_path / "page.html"]
    code, out, _ = specsim(*SMALL, *arguments, "--out", tmp_path / "out")
    assert code == 0
    assert "Report: " in out
    assert "<html" in (tmp_path / "page.html").read_text()[:200]
    assert RegretResult.load(tmp_path / "out" / "regret.json").policies == ("ucb1",)
    assert pq.read_table(tmp_path / "out" / "regret.parquet").num_rows == 3


def test_a_single_seed_is_enough(specsim, tmp_path):
    arguments = ["--steps", 60, "--seeds", 1, "--jobs", 1, "--policy", "ucb1", "--policy", "exp3s"]
    code, out, _ = specsim("regret", *arguments, "--html", tmp_path / "page.html", "--out", tmp_path)
    assert code == 0
    assert "nan" not in out
    page = (tmp_path / "page.html").read_text().split("<body>")[1].split("<script")[0]
    assert not re.search(r"\bnan\b", page)
    assert RegretResult.load(tmp_path / "regret.json").seeds == [0]


def test_arms_of_a_trace_are_priced_by_a_table(specsim, world):
    code, out, err = specsim(
        *SMALL, "--policy", "ucb1:reward=throughput", "--policy", "contextual", "--trace", world / "trace",
        "--cost", world / "linear", "--cycles", 1, "--batch", 2, "--json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert [found["name"] for found in result["environments"]] == ["trace"]
    assert any("example-linear" in note for note in result["notes"])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--policy", "ucb9"], "unknown drafter policy 'ucb9': allowed fixed_arm, "),
        (["--policy", "ucb1:d=1"], "ucb1: unknown option 'd'"),
        (["--policy", "ucb1:c=-1"], "ucb1: option c = '-1'"),
        (["--policy", "ucb1", "--policy", "ucb1"], "--policy ucb1 is given twice"),
        (["--environment", "storm"], "unknown environment 'storm': allowed stationary, "),
        (
            ["--environment", "one_swap", "--environment", "one_swap"],
            "--environment one_swap, one_swap: one is given twice",
        ),
        (["--seeds", "1000000000000"], "--seeds 1000000000000: allowed up to 10000"),
        (["--steps", "1000000000000"], "--steps 1000000000000: allowed up to 1000000"),
        (["--steps", "99999999999999999999"], "--steps 99999999999999999999: allowed up to 1000000"),
        (["--cycles", "2"], "--cycles, --batch and --extrapolate are about a trace: give --trace"),
        (["--batch", "4"], "--cycles, --batch and --extrapolate are about a trace: give --trace"),
        (["--extrapolate"], "--cycles, --batch and --extrapolate are about a trace: give --trace"),
        (["--seeds", "0"], "--seeds 0: give a number of seeds from 1 on"),
        (["--seeds", "1,1"], "--seeds 1,1: give a number of seeds"),
        (["--seeds", "x"], "--seeds x: 'x' is not one"),
        (["--seeds", "1,9223372036854775808"], "--seeds 1,9223372036854775808: give a number of seeds"),
        (["--means", "1.2/.3"], "means 1.2/0.3: allowed two or more numbers in [0, 1]"),
        (["--means", ".3"], "means 0.3"),
        (["--steps", "2"], "2 steps are too few"),
        (["--step-ms", "0"], "a step of 0 s"),
        (["--step-ms", "inf"], "a step of inf s"),
        (["--step-ms", "1e-320"], "allowed 1e-09 and 0 to 1e+09 s"),
        (["--step-ms", "1e300"], "a step of 1e+297 s"),
        (["--trace", "smollm2-domains", "--step-ms", "-1"], "a step of -0.001 s"),
        (["--trace", "smollm2-domains", "--batch", "1000000000"], "1000000000 requests a step: allowed 1 to 4,096"),
        (["--switch-ms", "inf"], "a switch of inf s"),
        (["--jobs", "0"], "'--jobs'"),
        (["--cycles", "0"], "--cycles 0: allowed 1 or more"),
        (["--cost", "h20-qwen3-8b"], "--cost and --draft-cost price the drafters of a trace: give --trace"),
        (["--trace", "nowhere"], "nowhere"),
        (["--html", "/dev/null/x.html"], "--html: /dev/null is not a folder"),
    ],
)
def test_a_mistake_is_one_line(refused, arguments, line):
    assert line in refused(*SMALL, *arguments)


def test_prices_without_a_table_are_refused(refused, world):
    assert "--draft-cost needs --cost" in refused(*SMALL, "--trace", world / "trace", "--draft-cost", "a=b")
