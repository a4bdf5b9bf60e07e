import dataclasses

from specsim.report.grid import grids
from specsim.report.sentences import by_table, footnotes

POLICIES = ("autoregressive", "dcut@exit28")


def test_a_sentence_stands_with_the_table_it_begins_with():
    sentences = ["h20: dcut@exit28 wins.", "All is synthetic.", "cpu: adapting loses.", "h20: the rest loses."]
    assert by_table(sentences, ("h20", "cpu"), POLICIES) == {
        "": ["All is synthetic."],
        "h20": ["dcut@exit28 wins.", "The rest loses."],
        "cpu": ["Adapting loses."],
    }


def test_of_two_tables_that_fit_the_longer_name_is_meant():
    assert by_table(["a: b: it wins."], ("a", "a: b"), POLICIES) == {"": [], "a": [], "a: b": ["It wins."]}


def test_a_table_that_was_not_studied_keeps_its_name_in_the_sentence():
    assert by_table(["other: it wins."], ("h20",), POLICIES)[""] == ["other: it wins."]


def noted(make_study, notes):
    """One grid whose cells carry notes, by policy."""
    study = make_study(tables=("h20",), batches=(8,), policies=("autoregressive", "a@x", "b@x"))
    cells = [dataclasses.replace(cell, notes=notes.get(cell.policy, ())) for cell in study.cells]
    return grids(dataclasses.replace(study, cells=cells))[0]


def test_a_note_of_the_study_is_not_repeated_for_its_cells(make_study):
    grid = noted(make_study, {"a@x": ("costs are derived",)})
    assert footnotes(grid, ["Costs are derived."]) == [("Costs are derived.", [])]


def test_a_note_of_cells_alone_is_kept_and_names_its_policy_when_it_is_only_one(make_study):
    grid = noted(make_study, {"a@x": ("extrapolated", "mapped."), "b@x": ("mapped.",)})
    assert footnotes(grid, []) == [("extrapolated.", ["a@x"]), ("mapped.", [])]
