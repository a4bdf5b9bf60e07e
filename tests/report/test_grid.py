import dataclasses
import math

import pytest

from specsim.report.grid import Load, definitions, grids, is_baseline, words_of


def replaced(study, policy, batch, **changes):
    """The study with fields of one cell changed; `speedup` is one of its values."""
    cells = []
    for cell in study.cells:
        if (cell.policy, cell.batch) == (policy, batch):
            own = dict(changes)
            if "speedup" in own:
                own["values"] = cell.values | {"speedup": own.pop("speedup")}
            cell = dataclasses.replace(cell, **own)
        cells.append(cell)
    return dataclasses.replace(study, cells=cells)


def entry_of(study, policy, batch):
    grid = grids(study)[0]
    row = next(row for row in grid.rows if row.policy == policy)
    return row.entries[grid.loads.index(Load(batch, 0.0))]


@pytest.fixture
def study(make_study):
    return make_study(tables=("h20-qwen3-8b",), batches=(64, 8), policies=("autoregressive", "dcut@exit28", "other"))


def test_there_is_a_grid_a_table_a_row_a_policy_and_a_column_a_load_in_ascending_order(make_study):
    shown = grids(make_study(batches=(64, 8)))
    assert [grid.table for grid in shown] == ["h20-qwen3-8b", "cpu-smollm2"]
    assert [load.label for load in shown[0].loads] == ["8", "64"]
    assert [row.policy for row in shown[0].rows][:2] == ["autoregressive", "fixed_depth:depth=3@exit28"]


def test_each_number_is_the_cells_own(study):
    for cell in study.cells:
        assert entry_of(study, cell.policy, cell.batch).speedup == cell.values["speedup"]


def test_the_fastest_policy_that_can_be_run_is_best(study):
    study = replaced(study, "dcut@exit28", 64, speedup=2.0)
    study = replaced(study, "other", 64, speedup=2.1)
    assert entry_of(study, "other", 64).verdict == "best"
    assert entry_of(study, "dcut@exit28", 64).verdict == ""


@pytest.mark.parametrize("change", [{"clairvoyant": True}, {"lossy_reason": "cuts on the drawn token"}])
def test_a_bound_and_a_lossy_policy_are_never_best_and_are_tagged(study, change):
    study = replaced(study, "dcut@exit28", 64, speedup=2.0)
    study = replaced(study, "other", 64, speedup=2.1, **change)
    assert entry_of(study, "other", 64).verdict == ""
    assert entry_of(study, "dcut@exit28", 64).verdict == "best"
    row = grids(study)[0].rows[2]
    assert row.tags == (("bound",) if "clairvoyant" in change else ("lossy",))
    assert row.reason == change.get("lossy_reason", "")


def test_not_speculating_is_best_where_all_else_is_slower(study):
    for policy in ("dcut@exit28", "other"):
        study = replaced(study, policy, 64, speedup=0.8, slower_than_autoregressive=True)
    assert entry_of(study, "autoregressive", 64).verdict == "best"
    assert entry_of(study, "other", 64).verdict == "slower"


def test_what_cannot_be_told_from_autoregressive_is_a_tie_even_when_its_mean_is_highest(study):
    study = replaced(study, "dcut@exit28", 64, speedup=0.9)
    study = replaced(study, "other", 64, speedup=1.01, not_distinguishable=True)
    assert entry_of(study, "other", 64).verdict == "tie"


def test_autoregressive_is_no_tie_with_itself(study):
    study = replaced(study, "autoregressive", 64, not_distinguishable=True)
    assert entry_of(study, "autoregressive", 64).verdict == ""


def test_a_missing_cell_leaves_a_hole_and_a_nan_is_never_best(study):
    study = replaced(replaced(study, "autoregressive", 64, speedup=math.nan), "dcut@exit28", 64, speedup=1.5)
    study = replaced(study, "other", 64, speedup=math.nan)
    study = dataclasses.replace(
        study, cells=[cell for cell in study.cells if (cell.policy, cell.batch) != ("other", 8)]
    )
    assert entry_of(study, "other", 8) is None
    assert entry_of(study, "other", 64).verdict == ""
    assert entry_of(study, "autoregressive", 64).verdict == ""
    assert entry_of(study, "dcut@exit28", 64).verdict == "best"


def test_open_loops_are_columns_by_rate(study):
    cells = [dataclasses.replace(cell, batch=0, rate=2.5) for cell in study.cells if cell.batch == 8]
    (load,) = grids(dataclasses.replace(study, cells=cells))[0].loads
    assert (load.label, load.phrase, load.amount) == ("2.5/s", "2.5 requests/s", 2.5)


@pytest.mark.parametrize("label", ["autoregressive", "autoregressive@ngram"])
def test_the_baseline_is_known_by_its_name(label):
    assert is_baseline(label)
    assert not is_baseline("not_" + label)


def test_only_words_that_occur_are_explained(study):
    study = replaced(study, "other", 64, clairvoyant=True)
    assert list(words_of(grids(study))) == ["best", "bound"]


def test_only_names_that_are_not_the_policys_text_need_a_definition(make_study):
    study = make_study(batches=(8,), policies=("short", "dcut"))
    study = dataclasses.replace(study, policies={"short": "dcut:depth=3@ngram", "dcut": "dcut"})
    assert definitions(study) == {"short": "dcut:depth=3@ngram"}
