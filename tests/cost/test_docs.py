"""docs/costs.md shows code that runs and numbers that the shipped table holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specsim.cost import CostTable
from tests.cost.tables import drafter

PAGE = Path(__file__).resolve().parents[2] / "docs" / "costs.md"


def test_the_example_of_a_table_of_ones_own_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(code, {})
    costs = CostTable.open("costs/mine")
    assert costs.step_cost(drafter("small"), 8, 7, 0.0).seconds[-1] == pytest.approx(0.0006 + 0.0098)


def test_the_numbers_shown_of_the_h20_are_those_of_the_table():
    costs = CostTable.open("h20-qwen3-8b")
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert [int(row[0]) for row in rows] == [4, 8, 16, 32, 64]
    for batch, *shown in rows:
        asked = (drafter("dflash"), int(batch), 15)
        plain = costs.step_cost(None, int(batch), 0, 0.0).seconds[0]
        whole = costs.step_cost(*asked, 0.0).seconds[-1]
        draft = costs.phases(*asked, 0, 0.0).draft
        assert shown == [f"{plain * 1e3:.2f}", f"{draft * 1e3:.2f}", f"{whole * 1e3:.1f}", f"{whole / plain:.2f}"]
