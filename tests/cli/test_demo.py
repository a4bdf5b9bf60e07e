"""`specsim demo`: the preset study."""

from __future__ import annotations

import json

import pytest

from specsim.config import build_study
from specsim.report.terminal import POLICY_WIDTH
from specsim.study import demo


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
    assert (recorded.trace, gpu.trace) == ("smollm2-cpu", "smollm2-cpu")
    texts = {str(policy) for policy in recorded.policies}
    assert {f"fixed_depth:depth={depth}@ngram" for depth in (15, 7, 3)} <= texts
    assert {"dcut@ngram", "dcut:depth=3@ucb1:reward=throughput", "dcut:depth=3@thompson_gaussian"} <= texts
    assert {"fixed_depth:depth=15", "dcut"} <= {str(policy) for policy in published.policies}
    assert published.batches == [4, 8, 16, 32, 64]
    assert all(study.clairvoyant for study in (recorded, gpu, published))


@pytest.mark.slow
def test_the_preset_runs_on_the_data_that_is_shipped(specsim, tmp_path):
    code, out, _ = specsim("demo", "--html", tmp_path / "report.html", "--json")
    assert code == 0
    result = json.loads(out)
    assert list(dict.fromkeys(cell["table"] for cell in result["cells"])) == [
        "cpu-smollm2",
        "h20-qwen3-8b, smollm2-cpu",
        "h20-qwen3-8b, synthetic-h20-dflash",
    ]
    assert any("is the fastest at batch" in sentence for sentence in result["findings"])
    assert any("slower than autoregressive" in sentence for sentence in result["findings"])
