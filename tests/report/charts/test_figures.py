import dataclasses
import math

import plotly.graph_objects as go
import pytest

from specsim.report.charts import sections
from specsim.report.charts.figure import band, log2_axis, numbers, rows_height, wrapped
from specsim.report.palette import Style


@pytest.fixture
def study(make_study):
    return make_study(batches=(1, 8, 64))


@pytest.fixture
def charts(study):
    return charts_of(study)


def charts_of(study):
    return {chart.name: chart for part in sections(study) for chart in part.charts}


def cells_at(study, batch, table="h20-qwen3-8b"):
    return {cell.policy: cell for cell in study.cells if (cell.table, cell.batch) == (table, batch)}


def drawn(figure):
    """The traces that a reader can point at, by policy."""
    return {trace["meta"]: trace for trace in figure["data"] if trace.get("hoverinfo") != "skip"}


def test_plotly_knows_every_attribute_of_every_figure(make_study):
    several = charts_of(make_study(batches=(8, 64)))
    single = charts_of(make_study(tables=("t",), batches=(8,)))
    for chart in [*several.values(), *single.values()]:
        for figure in chart.figures.values():
            go.Figure(figure)  # raises on an attribute or value that Plotly does not know


def test_every_axis_says_what_it_counts(charts):
    for chart in charts.values():
        for figure in chart.figures.values():
            rows = figure["layout"]["yaxis"].get("type") == "category"
            assert figure["layout"]["xaxis"]["title"]["text"], chart.name
            assert rows or figure["layout"]["yaxis"]["title"]["text"], chart.name


def test_every_chart_says_how_to_read_it(charts):
    assert len(charts) == 12
    assert charts["speedup"].title == "Speedup by batch size"
    assert all(chart.caption.endswith(".") and len(chart.caption) > 60 for chart in charts.values())


def test_a_policy_has_one_colour_and_dash_in_all_charts(charts):
    seen = {}
    for name, chart in charts.items():
        if name in ("survival", "calibration", "arms"):
            continue
        for figure in chart.figures.values():
            for policy, trace in drawn(figure).items():
                seen.setdefault(policy, set()).add((trace["line"]["color"], trace["line"]["dash"]))
    assert len(seen) == 9
    assert all(len(looks) == 1 for looks in seen.values())
    assert len(set().union(*seen.values())) == 9


def test_speedups_are_the_cells_own_at_their_loads(study, charts):
    trace = drawn(charts["speedup"].figures["0"])["dcut@exit28"]
    expected = [cells_at(study, batch)["dcut@exit28"].values["speedup"] for batch in (1, 8, 64)]
    assert trace["x"] == [1.0, 8.0, 64.0]
    assert trace["y"] == pytest.approx(expected, rel=1e-4)


def test_the_band_runs_along_the_upper_ends_and_back_along_the_lower():
    shape = band("p", Style("hue-0"), [1, 8, 64], [1.0, math.nan, 3.0], [2.0, 9.0, 4.0])
    assert shape["x"] == [1, 64, 64, 1]
    assert shape["y"] == [2.0, 4.0, 3.0, 1.0]


def test_not_speculating_is_a_dashed_line_at_one(charts):
    (mark,) = charts["speedup"].figures["0"]["layout"]["shapes"]
    assert (mark["y0"], mark["y1"], mark["line"]["dash"]) == (1.0, 1.0, "dash")
    assert "autoregressive" not in drawn(charts["speedup"].figures["0"])
    assert drawn(charts["throughput"].figures["0"])["autoregressive"]["line"]["dash"] == "dash"


def test_loads_double_at_equal_distances():
    axis = log2_axis("batch size", [1.0, 2.0, 4.0], ["1", "2", "4"])
    assert axis["type"] == "log"
    assert (axis["tickvals"], axis["ticktext"]) == ([1.0, 2.0, 4.0], ["1", "2", "4"])
    assert axis["range"][0] < 0 < math.log10(4) < axis["range"][1]


def test_at_a_single_load_policies_are_rows_with_their_intervals(make_study):
    study = make_study(tables=("t",), batches=(8,))
    figure = charts_of(study)["speedup"].figures["0"]
    trace, cell = drawn(figure)["dcut@exit28"], cells_at(study, 8, "t")["dcut@exit28"]
    low, high = cell.speedup_interval
    value = cell.values["speedup"]
    assert trace["x"] == pytest.approx([value], rel=1e-4)
    assert trace["error_x"]["array"] == pytest.approx([high - value], rel=1e-4)
    assert trace["error_x"]["arrayminus"] == pytest.approx([value - low], rel=1e-4)
    assert figure["layout"]["yaxis"]["categoryarray"][-1] == wrapped("fixed_depth:depth=3@exit28")
    assert (figure["layout"]["shapes"][0]["x0"], figure["layout"]["shapes"][0]["x1"]) == (1.0, 1.0)


def test_at_a_single_load_captions_and_titles_speak_of_rows_and_no_trade_is_shown(make_study):
    charts = charts_of(make_study(batches=(8,)))
    assert charts["speedup"].title == "Speedup at batch 8"
    assert "right of the dashed line" in charts["speedup"].caption
    assert "logarithmic" not in charts["throughput"].caption
    assert "interactivity" not in charts


def test_where_requests_arrive_at_a_rate_speedups_are_said_to_compare_latencies(study, charts):
    assert charts["speedup"].caption.startswith("Token throughput over that of")
    assert "in throughput to" in charts["difference"].caption
    rated = charts_of(
        dataclasses.replace(study, cells=[dataclasses.replace(c, batch=0, rate=2.5) for c in study.cells])
    )
    assert rated["speedup"].caption.startswith("Mean latency, arrival to last token, of autoregressive decoding over")
    assert "in 1 / mean latency to" in rated["difference"].caption
    title = rated["difference"].figures["0/0"]["layout"]["xaxis"]["title"]["text"]
    assert title.startswith("1 / mean latency against<br>")


def test_rows_are_as_high_as_the_longest_label_needs():
    long = "dcut:score=margin,ratios=0.1@sliding_window_ucb:window=500"
    assert wrapped(long).count("<br>") == 3
    assert rows_height([long] * 10) - rows_height([long] * 9) >= 4 * 15
    assert rows_height(["short"] * 10) < rows_height([long] * 10)


def test_interactivity_is_the_inverse_of_tpot(study, charts):
    trace = drawn(charts["interactivity"].figures["0"])["dcut@exit28"]
    cell = cells_at(study, 64)["dcut@exit28"]
    assert trace["x"][2] == pytest.approx(1 / cell.values["tpot_p50"], rel=1e-4)
    assert trace["y"][2] == pytest.approx(cell.values["token_throughput"], rel=1e-4)
    assert trace["customdata"] == ["batch 1", "batch 8", "batch 64"]


def test_the_thick_budget_line_is_a_moving_mean_that_skips_what_is_no_number(study):
    ratio = [math.nan if index % 2 else float(index % 4 == 0) for index in range(200)]
    cells = [dataclasses.replace(cell, series=cell.series | {"budget_ratio": ratio}) for cell in study.cells]
    trace = drawn(charts_of(dataclasses.replace(study, cells=cells))["budget"].figures["0/2"])["dcut@exit28"]
    window = [value for value in ratio[93:108] if not math.isnan(value)]
    assert trace["y"][100] == pytest.approx(sum(window) / len(window), rel=1e-4)
    assert None not in trace["y"]


def test_positions_count_from_one_and_unverified_ones_are_gaps(study, charts):
    trace = drawn(charts["acceptance"].figures["0/2"])["fixed_depth:depth=3@exit28"]
    assert trace["x"] == list(range(1, 16))
    assert trace["y"][3:] == [None] * 12
    cell = cells_at(study, 64)["fixed_depth:depth=3@exit28"]
    assert trace["y"][:3] == pytest.approx(cell.acceptance_by_position[:3], rel=1e-4)


def test_the_acceptance_of_positions_hardly_ever_verified_is_not_shown(study):
    shares = {"acceptance_by_position": [0.9, 0.5, 1.0], "verified_by_position": [1.0, 0.005, 0.004]}
    cells = [dataclasses.replace(cell, **shares) for cell in study.cells]
    charts = charts_of(dataclasses.replace(study, cells=cells))
    assert drawn(charts["acceptance"].figures["0/2"])["dcut@exit28"]["y"] == [0.9, 0.5, None]
    assert drawn(charts["verification"].figures["0/2"])["dcut@exit28"]["y"] == [1.0, 0.005, 0.004]


def test_only_policies_that_switch_have_an_arm_share_and_shares_fill_the_bar(charts):
    figure = charts["arms"].figures["0/2"]
    assert figure["layout"]["yaxis"]["categoryarray"] == [
        wrapped("dcut@thompson"),
        wrapped("dcut:count=code@ucb1:reward=throughput"),
    ]
    totals = [sum(trace["x"][row] for trace in figure["data"]) for row in range(2)]
    assert totals == pytest.approx([1.0, 1.0], rel=1e-4)
    assert [trace["meta"] for trace in figure["data"]] == ["ngram", "exit24", "exit28", "none"]


def test_without_a_policy_that_switches_there_is_no_chart_of_arms(make_study):
    study = make_study(batches=(8,), policies=("autoregressive", "dcut@exit28"))
    assert "arms" not in charts_of(study)
    sometimes = [dataclasses.replace(cell, arm_share={"exit28": 0.5, "none": 0.5}) for cell in study.cells]
    assert "arms" not in charts_of(dataclasses.replace(study, cells=sometimes)), "a plain step is no drafter"
    by_table = {"h20-qwen3-8b": "exit28", "cpu-smollm2": "exit24"}
    chosen = [dataclasses.replace(cell, arm_share={by_table[cell.table]: 1.0}) for cell in study.cells]
    assert "arms" not in charts_of(dataclasses.replace(study, cells=chosen)), "it is chosen before the run"


def test_the_best_fixed_policy_is_named_and_not_compared_with_itself(study, charts):
    figure = charts["difference"].figures["0/2"]
    assert "fixed_depth:depth=7@exit28" not in drawn(figure)
    assert figure["layout"]["xaxis"]["title"]["text"].endswith("fixed_depth:depth=7@exit28")
    mean, _, high = cells_at(study, 64)["dcut@exit28"].difference_to_best_fixed
    trace = drawn(figure)["dcut@exit28"]
    assert trace["x"] == pytest.approx([mean], rel=1e-4)
    assert trace["error_x"]["array"] == pytest.approx([high - mean], rel=1e-4)


def test_regret_is_the_series_of_the_study(study, charts):
    trace = drawn(charts["regret"].figures["0/2"])["dcut@exit28"]
    assert trace["y"] == pytest.approx(cells_at(study, 64)["dcut@exit28"].series["regret_tokens"], rel=1e-4)


def test_latency_stretches_the_tail_and_is_in_milliseconds(study, charts):
    figure = charts["latency"].figures["0/2"]
    trace, cell = drawn(figure)["dcut@exit28"], cells_at(study, 64)["dcut@exit28"]
    where = cell.latency["fraction"].index(0.99)
    assert trace["x"][where] == pytest.approx(100)
    assert trace["y"][where] == pytest.approx(1e3 * cell.latency["itl_seconds"][where], rel=1e-4)
    assert figure["layout"]["xaxis"]["ticktext"] == ["50 %", "90 %", "99 %", "99.9 %"]
    assert figure["layout"]["xaxis"]["tickvals"] == pytest.approx([2, 10, 100, 1000])


def test_the_largest_quantile_has_no_place_on_a_stretched_axis(study):
    latency = {"fraction": [0.5, 1.0], "itl_seconds": [0.01, 0.02]}
    cells = [dataclasses.replace(cell, latency=latency) for cell in study.cells]
    trace = drawn(charts_of(dataclasses.replace(study, cells=cells))["latency"].figures["0/2"])["dcut@exit28"]
    assert trace["x"] == [2.0]


def test_drafters_are_shown_over_all_domains_and_empty_bins_are_left_out(study):
    drafters = [
        dataclasses.replace(
            one, calibration={"bin_confidence": [0.1, 0.9], "bin_accepted": [math.nan, 0.8], "bin_count": [0, 5]}
        )
        for one in study.drafters
    ]
    figure = charts_of(dataclasses.replace(study, drafters=drafters))["calibration"].figures[""]
    assert [trace["meta"] for trace in figure["data"]] == ["ngram", "exit24", "exit28"]
    trace = drawn(figure)
    assert (trace["ngram"]["x"], trace["ngram"]["y"], trace["ngram"]["customdata"]) == ([0.9], [0.8], [5])
    assert "ECE 0.08, AUC 0.83" in trace["ngram"]["hovertemplate"]


def test_marker_areas_are_proportional_to_counts(charts, study):
    trace = drawn(charts["calibration"].figures[""])["ngram"]
    sizes, counts = trace["marker"]["size"], trace["customdata"]
    assert (sizes[8] / sizes[9]) ** 2 == pytest.approx(counts[8] / counts[9], rel=1e-3)


def test_a_trace_without_statistics_has_no_section_of_drafters(study):
    names = [part.name for part in sections(dataclasses.replace(study, drafters=[]))]
    assert names == ["load", "adaptation", "inside"]


def test_numbers_are_short_and_nan_is_null():
    assert numbers([1 / 3, math.nan, math.inf, 123456.7]) == [0.33333, None, None, 123460.0]
