"""docs/bandits_by_domain.py: the tables of docs/regret.md on the stream of domains are what was measured."""

import importlib.util
import json
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


def load_script():
    spec = importlib.util.spec_from_file_location("bandits_page", DOCS / "bandits_by_domain.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


script = load_script()


@pytest.fixture
def results():
    return json.loads(script.RESULTS.read_text(encoding="utf-8"))


def row(kind, ratio, low, high, speed=10.0):
    return {"kind": kind, "over_best_fixed": ratio, "interval": [low, high], "tokens_per_second": speed}


def made_up():
    cell = {
        "cost": "table",
        "arms": ["a", "b"],
        "budget": "dcut:ratios=all",
        "batch": 8,
        "best_fixed": "a",
        "oracle_over_best_fixed": 1.2,
        "below_the_best_fixed": ["slow"],
        "tuned": ["slow:c=2"],
        "policies": {
            "a": row("fixed", 1.0, 1.0, 1.0),
            "autoregressive": row("fixed", 0.5, 0.5, 0.5, 5.0),
            "slow": row("policy", 0.9, 0.85, 0.95),
            "fast": row("policy", 1.1, 1.05, 1.15),
            "slow:c=2": row("tuned", 1.0, 0.98, 1.02),
        },
    }
    return {"cells": [cell, cell | {"arms": list("abcdef"), "budget": "dcut:depth=goodput", "batch": 1}]}


def test_loads_say_what_there_is_to_gain_and_who_gains_it():
    first, second = script.loads(made_up()).splitlines()[2:]
    told = "`a`, 10.0 | 0.500 | 1.200 | `fast` **1.100** (1.050–1.150) | 1 of 3 | 1 of 3 |"
    assert first == f"| `table` | specialists | D-cut | 8 | {told}"
    assert second == f"| `table` | all six | D-cut, depth by goodput | 1 | {told}"


def test_policies_have_a_table_for_each_budget_and_tuned_ones_come_last():
    tables = script.policies(made_up()).splitlines()
    assert tables[8:11] == ["At the costs of `table`, D-cut, depth by goodput:", "", "| policy | all six, 1 |"]
    assert tables[:7] == [
        "At the costs of `table`, D-cut:",
        "",
        "| policy | specialists, 8 |",
        "|---|---|",
        "| `fast` | **1.100** (1.050–1.150) |",
        "| `slow` | *0.900* (0.850–0.950) |",
        "| `slow`, tuned | 1.000 (0.980–1.020) |",
    ]


def test_the_page_is_what_the_script_writes(results):
    page = script.PAGE.read_text(encoding="utf-8")
    assert page == script.updated(page, results), "run `python docs/bandits_by_domain.py`"
    results["cells"][0]["oracle_over_best_fixed"] += 0.01
    assert page != script.updated(page, results)


def test_a_page_without_its_marks_is_refused(results):
    with pytest.raises(ValueError, match="loads"):
        script.updated("no table", results)


def test_the_measured_cells_are_of_one_stream_and_name_the_policies_that_lose(results):
    assert (results["trace"], results["segments"], results["requests_a_segment"]) == ("smollm2-domains", 9, 8)
    assert {tuple(cell["tokens"]) for cell in results["cells"]} == {(11344,) * results["seeds"]}
    for cell in results["cells"]:
        assert cell["oracle_over_best_fixed"] >= 1
        assert cell["below_the_best_fixed"] == [
            name
            for name, found in cell["policies"].items()
            if found["kind"] != "fixed" and found["verdict"] == "below the best fixed drafter"
        ]
