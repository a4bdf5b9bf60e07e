import dataclasses

from specsim.report.grid import grids
from specsim.report.sentences import by_table, footnotes, gathered

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


def test_notes_that_differ_in_a_drafter_s_name_become_one_at_the_first_one_s_place():
    a_pass = "is derived from hint: 0.25 of a plain step a pass."
    notes = [
        f"h20: drafting by a {a_pass}",
        "h20: what-if: drafting by b is priced as dflash.",
        f"h20: drafting by c-1 {a_pass}",
        "h20: drafting by d is derived from hint: 0.5 of a plain step a pass.",
        f"cpu: drafting by a {a_pass}",
        "h20: switching to a is derived from its hint.",
        f"h20: drafting by e {a_pass}",
    ]
    assert gathered(notes) == [f"h20: drafting by a, c-1 and e {a_pass}", *notes[1:2], *notes[3:6]]
    assert gathered([f"Drafting by a {a_pass}", f"Drafting by b {a_pass}"]) == [f"Drafting by a and b {a_pass}"]
    assert gathered([]) == []
    beyond = "extrapolated beyond the measured context of drafting by"
    assert gathered([f"{beyond} a-1.5.", "other.", f"{beyond} b."]) == [f"{beyond} a-1.5 and b.", "other."]


def test_a_footnote_told_with_others_is_not_told_again(make_study):
    notes = [f"Drafting by {name} is derived from hint: 0.25 of a plain step a pass." for name in "ab"]
    cells = {"a@x": (notes[0].lower(),), "b@x": (notes[1].lower(),)}
    assert footnotes(noted(make_study, cells), notes) == [(notes[0].replace("by a", "by a and b"), [])]


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
