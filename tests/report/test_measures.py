import dataclasses
import math

from specsim.metrics import Summary
from specsim.report.measures import MEASURES
from specsim.study.result import Cell

OF_THE_CELL = {"speedup", "regret_to_best_arm", "difference_to_best_fixed", "share_of_clairvoyant"}


def test_every_column_is_a_metric_that_exists():
    fields = {field.name for field in dataclasses.fields(Summary)}
    assert {measure.field for measure in MEASURES} - OF_THE_CELL <= fields
    assert {"difference_to_best_fixed", "share_of_clairvoyant"} <= {field.name for field in dataclasses.fields(Cell)}


def test_numbers_come_from_the_cell_and_what_it_lacks_is_nan(make_study):
    cell = make_study().cells[1]
    of = {measure.field: measure.of(cell) for measure in MEASURES}
    assert of["token_throughput"] == cell.values["token_throughput"]
    assert of["difference_to_best_fixed"] == cell.difference_to_best_fixed[0]
    assert of["share_of_clairvoyant"] == cell.share_of_clairvoyant
    bare = dataclasses.replace(cell, values={}, difference_to_best_fixed=None, share_of_clairvoyant=None)
    assert all(math.isnan(measure.of(bare)) for measure in MEASURES)


def test_units_are_those_of_the_heading(make_study):
    cell = dataclasses.replace(make_study().cells[1], values={"ttft_p50": 0.0123, "budget_ratio": 0.25, "e2e_p50": 2.0})
    texts = {measure.field: (measure.text(cell), measure.unit) for measure in MEASURES}
    assert texts["ttft_p50"] == ("12.3", "ms")
    assert texts["e2e_p50"] == ("2.00", "s")
    assert texts["budget_ratio"] == ("25.0 %", "")
