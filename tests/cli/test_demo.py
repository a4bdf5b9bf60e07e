"""`specsim demo`: the preset study."""

from __future__ import annotations

import json

import pytest

from specsim.config import build_study
from specsim.cost import CostTable
from specsim.report.terminal import POLICY_WIDTH
from specsim.study import demo
from specsim.trace import Trace


@pytest.fixture
def small(world, monkeypatch):
    """The demo on a world that takes a second."""

    def studies():
        shared = {"trace": str(world / "trace"), "seeds": 1, "requests": 8, "title": demo.TITLE}
        return [
            build_study({**shared, "tables": [str(world / "linear")], "batches": [2], "policies": ["dcut@strong"]}),
            build_study({**shared, "tables": [str(world / "staircase")], "batches": [4], "policies": ["dcut@strong"]}),
        ]

    monkeypatch.setattr(demo, "demo_studies", studies)


def test_it_prints_the_tables_and_says_where_the_report_is(specsim, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = specsim("demo", "--jobs", 1)
    assert (code, err) == (0, "")
    assert demo.TITLE in out
    assert "example-linear" in out
    assert "example-staircase" in out
    assert out.rstrip().endswith("Report: report.html")
    assert max(map(len, out.splitlines())) <= 80
    assert "<html" in (tmp_path / "report.html").read_text()[:2000]


def test_the_report_goes_where_it_is_told_to(specsim, refused, small, tmp_path):
    assert specsim("demo", "--jobs", 1, "--html", tmp_path / "deep" / "mine.html")[0] == 0
    assert (tmp_path / "deep" / "mine.html").is_file()
    assert "is a folder; give a file" in refused("demo", "--html", tmp_path)


def test_json_is_all_it_prints_when_asked(specsim, small, tmp_path):
    code, out, err = specsim("demo", "--jobs", 1, "--json", "--html", tmp_path / "report.html")
    assert (code, err) == (0, "")
    assert {cell["table"] for cell in json.loads(out)["cells"]} == {"example-linear", "example-staircase"}


def test_labels_of_the_preset_fit_the_table():
    for study in demo.demo_studies():
        labels = [policy.label for policy in study.policies]
        assert all(label and len(label) <= POLICY_WIDTH for label in labels)
        assert len(set(labels)) == len(labels)


def test_the_preset_has_the_policies_it_is_known_for():
    recorded, gpu, published = demo.demo_studies()
    assert (recorded.trace, gpu.trace) == ("smollm2-drafters", "smollm2-drafters")
    texts = {str(policy) for policy in recorded.policies}
    assert {f"fixed_depth:depth={depth}@block-general" for depth in (15, 7, 3)} <= texts
    assert {"dcut@block-general", "fixed_depth:depth=3@ucb1:reward=accepted_fraction"} <= texts
    own_depth = "dcut:depth=goodput,ratios=all,numerator=bonus"
    assert {f"{own_depth}@ucb1:reward=throughput,c=0.2", f"{own_depth}@ngram"} <= texts
    assert {"fixed_depth:depth=15", "dcut", own_depth} <= {str(policy) for policy in published.policies}
    assert published.batches == [4, 8, 16, 32, 64]
    assert all(study.clairvoyant for study in (recorded, gpu, published))


def test_every_drafter_of_the_preset_has_a_price_that_is_measured_or_said_to_be_none():
    """On the CPU all are measured; on the H20 the block drafter is priced as the published one, the heads by hint."""
    recorded, gpu, _ = demo.demo_studies()
    drafters = [drafter.name for drafter in Trace.open(recorded.trace).drafters]
    measured = CostTable.open(recorded.tables[0].path).cells
    assert set(drafters) <= {cell.drafter for cell in measured if cell.phase == "draft"}
    assert gpu.tables[0].draft_costs == {"block-general": "dflash"}


@pytest.mark.slow
def test_the_preset_runs_on_the_data_that_is_shipped(specsim, tmp_path):
    code, out, _ = specsim("demo", "--html", tmp_path / "report.html", "--json")
    assert code == 0
    result = json.loads(out)
    assert list(dict.fromkeys(cell["table"] for cell in result["cells"])) == [
        "cpu-smollm2-drafters",
        "h20-qwen3-8b, smollm2-drafters",
        "h20-qwen3-8b, synthetic-h20-dflash",
    ]
    assert any("is the fastest at batch" in sentence for sentence in result["findings"])
    assert any("lower than autoregressive: depth 15" in sentence for sentence in result["findings"])
    adaptive = [cell for cell in result["cells"] if cell["policy"] == "D-cut, own depth @UCB1"]
    assert len(adaptive) == 6
    assert all(cell["speedup_interval"][1] > 1 for cell in adaptive)  # its drafter may be plain decoding
    priced = [note for note in result["notes"] if "what-if: drafting by block-general is priced as dflash" in note]
    assert len(priced) == 1
