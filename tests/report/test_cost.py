"""A cost table as one HTML file."""

import json
import math
import re

import plotly.graph_objects as go
import pytest

from specsim.cost import Cell, CostTable
from specsim.cost.whole import whole_steps
from specsim.report.cost import cost_page, findings, write_cost_page
from specsim.report.cost_charts import charts
from specsim.shipped import shipped_names
from tests.cost.tables import draft, table, verify
from tests.report.browser import drawn, needs_browser

SIZES = (8, 16)
CELLS = [
    *verify({(1, 8): 0.010, (1, 16): 0.020, (1, 32): 0.040, (4, 8): 0.012, (4, 16): 0.030}),
    *verify({(1, 8): 0.011, (1, 16): 0.022, (4, 8): 0.013, (4, 16): 0.033}, 64),
    *draft({(1, 7): 0.003, (4, 7): 0.004, (1, 3): 0.002}),
    *draft({(1, 7): 0.005, (4, 7): 0.006}, name="<eagle>", context=64),
    Cell("host", 0.001, 1),
    Cell("host", 0.002, 4),
    Cell("plan", 0.0005, 1),
    Cell("prefill", 0.1, tokens=64),
    Cell("prefill", 0.2, tokens=64, context=128),
    Cell("switch", 0.01, tokens=64, drafter="block"),
    Cell("join", 0.002, 4, tokens=2),
    Cell("late", 0.0004, 4),
]


@pytest.fixture(scope="module")
def costs():
    return table(CELLS, SIZES, remarks=("Measured <on> a Monday.",))


@pytest.fixture(scope="module")
def page(costs):
    return cost_page(costs)


@pytest.fixture(scope="module")
def shown(costs):
    return {chart.name: chart for chart in charts(costs)}


def lines(figure):
    return {(trace["meta"], tuple(trace["x"])): trace for trace in figure["data"]}


def test_it_loads_nothing_from_elsewhere(page):
    without_scripts = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r"(?:src|href)\s*=|url\(|@import|https?://", without_scripts)
    assert "default-src 'none'" in page


def test_every_phase_has_a_chart_with_titles_captions_and_attributes_that_plotly_knows(shown):
    assert list(shown) == ["verify", "whole", "draft", "phases", "prefill", "switch", "join"]
    for chart in shown.values():
        assert chart.caption.endswith(".")
        for figure in chart.figures.values():
            go.Figure(figure)
            assert figure["layout"]["xaxis"]["title"]["text"]
            assert figure["layout"]["yaxis"]["title"]["text"] in ("milliseconds", "times a plain step")


def test_verifying_has_a_line_a_batch_and_steps_only_where_graphs_are_captured(shown):
    assert set(shown["verify"].figures) == {"0", "1"}
    found = lines(shown["verify"].figures["0"])
    assert found["batch 1", (8, 16)]["line"]["shape"] == "vh"
    assert found["batch 1", (32,)]["line"]["shape"] == "linear"
    assert found["batch 1", (8, 16)]["y"] == [10.0, 20.0]
    assert set(found) == {("batch 1", (8, 16)), ("batch 1", (32,)), ("batch 4", (8, 16))}


def test_a_whole_step_is_told_in_plain_steps_at_each_context_and_for_each_drafter(shown, costs):
    assert set(shown["whole"].figures) == {"0/0", "0/1", "1/0", "1/1"}
    (trace,) = [trace for trace in shown["whole"].figures["0/1"]["data"] if trace["meta"] == "batch 1"]
    plain = 10 + 1
    assert trace["y"] == pytest.approx([(ms + 3 + 0.5 + 1) / plain for ms in (10, 20, 40)], rel=1e-4)
    assert trace["customdata"][0] == "14.50 ms"
    eagle = [step.ratio for step in whole_steps(costs, 64, "<eagle>") if step.batch == 4]
    assert eagle == pytest.approx([(13 + 6 + 2) / 15, (33 + 6 + 2) / 15])


def test_a_whole_step_that_no_measured_batch_makes_up_has_no_chart():
    costs = table([*verify({(1, 1): 0.01, (1, 8): 0.02}), *draft({(4, 7): 0.008})])
    assert [chart.name for chart in charts(costs)] == ["verify", "draft"]


def test_without_a_drafter_a_whole_step_is_verifying_and_the_hosts_work():
    costs = table([*verify({(1, 1): 0.010, (1, 4): 0.030}), Cell("host", 0.010, 1)])
    assert [step.ratio for step in whole_steps(costs, 0, None)] == [1.0, 2.0]
    page = cost_page(costs)
    assert "No drafter was measured" in page
    assert "none measured" in page
    assert '"draft":' not in page


def test_a_table_without_plain_steps_has_no_ratios_but_is_shown():
    costs = table(verify({(1, 8): 0.010, (4, 16): 0.030}))
    assert all(math.isnan(step.ratio) for step in whole_steps(costs, 0, None))
    text = re.sub(r"<script.*?</script>", "", cost_page(costs), flags=re.DOTALL)
    assert not re.search(r"\bnan\b", re.sub(r"<[^>]+>", " ", text))


def test_further_phases_are_explained_and_only_those_there_are(shown):
    caption = shown["phases"].caption
    assert caption.startswith("host: all that a plain step takes beyond the pass")
    assert "late: what" in caption
    assert "late_draft" not in caption


def test_a_count_is_on_a_logarithmic_axis_that_names_powers_of_two():
    wide = table(verify({(1, 2**power): 0.001 * 2**power for power in range(12)}))
    ticks = {chart.name: chart for chart in charts(wide)}["verify"].figures["0"]["layout"]["xaxis"]
    assert ticks["tickvals"] == [1, 4, 16, 64, 256, 1024]
    assert ticks["ticktext"][-1] == "1,024"
    narrow = table(verify({(1, 3): 0.001}))
    assert charts(narrow)[0].figures["0"]["layout"]["xaxis"]["tickvals"] == [3]


def test_the_answer_says_what_deep_drafts_cost_in_plain_steps():
    cells = [
        *verify({(1, 1): 0.010, (1, 8): 0.020, (2, 2): 0.020, (2, 16): 0.060}),
        *draft({(1, 7): 0.005, (2, 7): 0.01}),
    ]
    assert findings(table(cells)) == [
        "With 7 drafts a request by block, verifying 8 tokens a request takes as long as 2.50 plain steps at batch 1, "
        "3.50 at batch 2."
    ]
    assert findings(table(verify({(1, 1): 1.0, (1, 4): 3.0, (2, 2): 1.0, (2, 8): 4.0}))) == [
        "Verifying 4 tokens a request takes as long as 3.00 plain steps at batch 1, 4.00 at batch 2."
    ]


def test_every_cell_is_tabulated_and_what_a_person_wrote_is_escaped(page, costs):
    rows = re.search(r'<table class="plain cells">.*?<tbody>(.*?)</tbody>', page, re.DOTALL)[1]
    assert rows.count("<tr>") == len(costs.cells)
    assert "Measured &lt;on&gt; a Monday." in page
    assert "<eagle>" not in page


def test_the_same_table_gives_the_same_bytes(costs, tmp_path):
    for name in ("one", "two"):
        write_cost_page(costs, tmp_path / "deep" / f"{name}.html")
    assert (tmp_path / "deep" / "one.html").read_bytes() == (tmp_path / "deep" / "two.html").read_bytes()


@pytest.mark.parametrize("name", shipped_names("cost"))
def test_every_shipped_table_has_a_page(name):
    page = cost_page(CostTable.open(name))
    assert f"<h1>Cost table {name}</h1>" in page
    assert "plain steps at batch" in page


@needs_browser
def test_a_browser_draws_every_chart_and_follows_the_choice(page, shown, tmp_path):
    then = """document.querySelector('.toolbar input[name="table"][value="1"]').click();"""
    seen = drawn(page, tmp_path, then)
    for name in shown:
        chart = re.search(rf'<figure class="chart" data-chart="{name}".*?</figure>', seen, re.DOTALL)[0]
        assert 'class="main-svg"' in chart, f"{name} was not drawn"
    assert re.findall(r'<div data-place="([\d/]+)">', seen) == ["1/0"]
    assert ">context 64, &lt;eagle&gt;</span>" in seen
    assert json.loads(re.search(r'id="figures">(.*?)</script>', page)[1])["switch"]["follows"] == "study"
