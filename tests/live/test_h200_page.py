"""docs/h200.md: its tables are what the scripts measured."""

import importlib.util
import json
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def load_script():
    spec = importlib.util.spec_from_file_location("h200_page", DOCS / "h200.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


script = load_script()
PAGE = script.PAGE.read_text(encoding="utf-8")


def test_the_page_says_what_was_measured():
    assert script.updated(PAGE, script.read(script.MEASURED)) == PAGE


def test_the_errors_told_are_those_of_the_cells():
    grid = script.read(script.MEASURED)["h200_grid"]
    errors = [abs(cell["error"]) for cell in grid["cells"]]
    assert grid["mean_error"] == pytest.approx(sum(errors) / len(errors), abs=1e-4)
    assert grid["max_error"] == max(errors)
    for cell in grid["cells"]:
        assert cell["error"] == pytest.approx(cell["predicted"] / cell["measured"] - 1, abs=1e-3)


def test_another_measurement_makes_other_tables_and_a_tiny_one_is_refused(tmp_path):
    grid = script.read(script.MEASURED)["h200_grid"]
    grid["cells"][0]["measured"] = 98765.4
    (tmp_path / "h200_grid.json").write_text(json.dumps(grid))
    assert "98,765" in script.updated(PAGE, script.read(tmp_path))
    (tmp_path / "h200_grid.json").write_text(json.dumps(grid | {"tiny": True}))
    with pytest.raises(ValueError, match="--tiny"):
        script.read(tmp_path)


def test_waiting_is_told_apart_from_idling_between_kernels_where_it_was_measured():
    old = {"policy": "dcut", "batch": 8, "step_ms": 10.0, "busy_ms": 9.0, "waiting_share": 0.1}
    new = old | {"between_kernels_ms": 0.6, "idle_share": 0.1, "waiting_share": 0.04}
    rows = script.overhead({"h200_overhead": {"cells": [old, new]}, "h200_grid": {}}).splitlines()[2:]
    assert rows == ["| `dcut` | 8 | 10.00 | 9.00 | 10.0% | – |", "| `dcut` | 8 | 10.00 | 9.00 | 10.0% | 4.0% |"]


def test_a_page_without_a_mark_is_refused():
    with pytest.raises(ValueError, match="passes"):
        script.updated(PAGE.replace("<!-- end of passes -->\n", ""), script.read(script.MEASURED))


def test_what_was_measured_before_the_throughputs_is_called_so(tmp_path):
    def page(**dates):
        for name, date in dates.items():
            own = script.read(script.MEASURED)[name] | {"date": date}
            if name == "h200_profile":
                own["tables"] = {model: table | {"date": date} for model, table in own["tables"].items()}
            (tmp_path / f"{name}.json").write_text(json.dumps(own))
        return script.updated(PAGE, script.read(tmp_path))

    assert page(h200_grid="2026-12-01", h200_overhead="2026-11-30").count("This table is of an earlier run") == 1
    assert "The rows of llama-3-8b are of an earlier run" in page()
    new = page(h200_overhead="2026-12-01", h200_profile="2026-12-01", h200_drafters="2026-12-01")
    assert "earlier run" not in new


PARITY = {"complete": True, "difference": None, "equal_steps": 40, "steps": 40, "predicted_over_measured_seconds": 1.02}
OFF = {"complete": False, "difference": "step 3", "equal_steps": 3, "steps": 40, "predicted_over_measured_seconds": 0.9}


def a_cell(policy, drafters, batch, speed, length, parity=PARITY):
    own = {"policy": policy, "drafters": drafters, "batch": batch, "tokens_per_second": speed, "finished": 9}
    return own | {"mean_acceptance_length": length, "acceptance_error": 0.02, "parity": parity}


DRAFTERS = {
    "tiny": False,
    "date": "2026-12-01",
    "hardware": "1 x NVIDIA H200",
    "drafters": ["eagle", "ngram"],
    "table_steps": {"1": {"plain_ms": 2.5, "deepest_ms": 3.0, "host_ms": 0.5}},
    "cells": [
        a_cell("autoregressive", ["ngram"], 1, 300.0, 1.0),
        a_cell("dcut", ["eagle"], 1, 750.0, 3.0),
        a_cell("dcut@ucb1", ["eagle", "ngram"], 1, 600.0, 2.5),
        a_cell("autoregressive", ["ngram"], 256, 40_000.0, 1.0),
        a_cell("dcut", ["eagle"], 256, 50_000.0, 2.0, OFF),
    ],
    "peers": [
        {"peer": "transformers", "requests": 4, "tokens_per_second": 50.0, "compared": 4}
        | {"outputs_equal_to_the_engines": 3},
        {"peer": "flashspec", "error": "ended with | code 1"},
    ],
}


def test_a_section_comes_with_its_first_measurement_and_stays(tmp_path):
    bare = PAGE.split(script.SECTIONS["h200_drafters"].splitlines()[1])[0]
    (tmp_path / "h200_drafters.json").write_text(json.dumps(DRAFTERS))
    found = script.read(tmp_path)
    page = script.updated(bare, found)
    lines = page.splitlines()
    for row in (
        "| `autoregressive` | none | 300 (1.00) | 40,000 (1.00) |",
        "| `dcut` | eagle | 750 (2.50) | 50,000 (1.25) |",
        "| `dcut@ucb1` | all 2 | 600 (2.00) | – |",
        "| `dcut` | eagle | 3.00 ± 0.06 | 2.00 ± 0.04 |",
        "| runs taken again to the end | 4 of 5 |",
        "| runs with a step decided otherwise | 1 |",
        "| steps decided the same | 163 of 200 |",
        "| predicted against measured seconds, mean error over runs | 3.6% |",
        "| largest error | -10.0% |",
        "| transformers | 4 | 50 | 3 of 4 |",
        "| flashspec | – | not measured: ended with / code 1 | – |",
        "| this engine, `dcut`, eagle | 9 | 750 | |",
        "| smollm2-135m | 1 | 2.50 | 3.00 | 0.50 |",
    ):
        assert lines.count(row) == 1, row
    assert script.updated(page, found) == page
    with pytest.raises(ValueError, match="end of peers"):
        script.updated(page.replace("<!-- end of peers -->", ""), found)


def test_names_in_the_target_s_origin_keep_their_capitals():
    measured = script.read(script.MEASURED)
    assert measured["h200_near_ties"]["origin"] in PAGE
    other = measured["h200_near_ties"] | {"origin": "random weights in the shape of Llama-3-8B"}
    assert ": random weights in the shape of Llama-3-8B, " in script.near_ties({"h200_near_ties": other})
