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
    rows = script.overhead({"h200_overhead": {"cells": [old, new]}}).splitlines()[2:]
    assert rows == ["| `dcut` | 8 | 10.00 | 9.00 | 10.0% | – |", "| `dcut` | 8 | 10.00 | 9.00 | 10.0% | 4.0% |"]


def test_a_page_without_a_mark_is_refused():
    with pytest.raises(ValueError, match="passes"):
        script.updated(PAGE.replace("<!-- end of passes -->\n", ""), script.read(script.MEASURED))
