from __future__ import annotations

import pytest

from specsim.cost import Cell
from specsim.cost.cells import check_cells, from_parquet, to_parquet
from specsim.errors import InputError
from tests.cost.tables import captured_tables, draft, eager_tables, table, verify

GOOD = verify({(1, 1): 1.0})


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        (Cell("verfy", 1.0, tokens=1), "phase 'verfy' is not one of verify, draft"),
        (Cell("verify", 1.0, tokens=1, provenance="guessed"), "provenance 'guessed' is not one of measured"),
        (Cell("verify", -1.0, tokens=1), "seconds is -1.0"),
        (Cell("verify", float("nan"), tokens=1), "seconds is nan"),
        (Cell("verify", float("inf"), tokens=1), "seconds is inf"),
        (Cell("verify", 1.0), "tokens is None but needed in phase verify"),
        (Cell("verify", 1.0, tokens=1, depth=1), "depth is 1 but not allowed in phase verify"),
        (Cell("verify", 1.0, tokens=1, drafter="a"), "drafter is 'a' but not allowed in phase verify"),
        (Cell("verify", 1.0, batch=2, tokens=1), "tokens is 1 at batch 2"),
        (Cell("verify", 1.0, batch=0, tokens=1), "batch is 0"),
        (Cell("verify", 1.0, tokens=1, context=-1), "context is -1"),
        (Cell("verify", 1.0, tokens=1, num_samples=0), "num_samples is 0"),
        (Cell("draft", 1.0, drafter="a"), "depth is None but needed in phase draft"),
        (Cell("draft", 1.0, depth=0, drafter="a"), "depth is 0"),
        (Cell("draft", 1.0, depth=1), "drafter is None but needed in phase draft"),
        (Cell("prefill", 1.0, tokens=0), "tokens is 0"),
        (Cell("prefill", 1.0, batch=2, tokens=1), "batch is 2 but phase prefill"),
        (Cell("host", 1.0, context=1), "context is 1 but phase host"),
        (Cell("host", 1e300), "seconds is 1e.300, allowed are numbers from 0 to 1,000,000"),
        (Cell("host", float("nan")), "seconds is nan"),
        (Cell("host", 1.0, 2**31), "batch is 2147483648, allowed are integers from 1 to 2,147,483,647"),
        (Cell("join", 1.0, tokens=2**62), "tokens is 4611686018427387904, allowed are integers from 1 to"),
        (Cell("verify", 1e-320, 2, tokens=2), "seconds is 1e-320 in phase verify, allowed are numbers from 1e-09"),
        (
            Cell("verify", 1.0, 2, tokens=2, context=2**62),
            "context is 4611686018427387904, allowed are integers from 0 to",
        ),
        (Cell("switch", 1.0, tokens=1, drafter="a", context=1), "context is 1 but phase switch"),
        (Cell("late", 1.0, tokens=1), "tokens is 1 but not allowed in phase late$"),
        (Cell("late", 1.0, depth=1), "depth is 1 but not allowed in phase late$"),
        (Cell("late", 1.0, drafter="a"), "drafter is 'a' but not allowed in phase late$"),
        (Cell("late", 1.0, batch=0), "batch is 0"),
        (Cell("late", 1.0, context=1), "context is 1 but phase late is priced without it"),
        (Cell("late_draft", 1.0, tokens=1), "tokens is 1 but not allowed in phase late_draft"),
        (Cell("late_draft", 1.0, depth=1), "depth is 1 but not allowed in phase late_draft"),
        (Cell("late_draft", 1.0, drafter="a"), "drafter is 'a' but not allowed in phase late_draft"),
        (Cell("late_draft", 1.0, context=1), "context is 1 but phase late_draft is priced without it"),
        (Cell("hidden", 1.0, depth=1), "depth is 1 but not allowed in phase hidden"),
        (Cell("hidden", 1.0, drafter="a"), "drafter is 'a' but not allowed in phase hidden"),
        (Cell("hidden", 1.0, context=1), "context is 1 but phase hidden is priced without it"),
        (Cell("join", 1.0), "tokens is None but needed in phase join"),
        (Cell("join", 1.0, tokens=0), "tokens is 0, allowed are integers from 1"),
        (Cell("join", 1.0, tokens=1, depth=1), "depth is 1 but not allowed in phase join"),
        (Cell("join", 1.0, tokens=1, drafter="a"), "drafter is 'a' but not allowed in phase join"),
        (Cell("join", 1.0, tokens=1, context=1), "context is 1 but phase join is priced without it"),
    ],
)
def test_a_cell_that_cannot_be_priced_from_is_refused_by_row(cell, complaint):
    with pytest.raises(InputError, match=f"^here: row 1: {complaint}"):
        check_cells([*GOOD, cell], (), "here")


def test_the_smallest_allowed_values_are_allowed():
    cells = [*GOOD, Cell("draft", 0.0, 1, depth=1, drafter="a", num_samples=1), Cell("prefill", 0.0, tokens=1)]
    cells += [Cell("late", 0.0), Cell("late_draft", 0.0), Cell("join", 0.0, tokens=1)]
    assert check_cells(cells, (), "here") == tuple(cells)


def test_two_cells_of_one_place_are_refused():
    with pytest.raises(InputError, match="row 1: duplicate cell"):
        check_cells([*GOOD, Cell("verify", 2.0, 1, tokens=1)], (), "here")


def test_a_place_of_joining_is_the_batch_and_how_many_join_and_one_of_being_late_is_the_batch():
    cells = [*GOOD, *(Cell("join", 1.0, batch, tokens=many) for batch in (16, 32) for many in (1, 2))]
    cells += [Cell(phase, 1.0, batch) for phase in ("late", "late_draft") for batch in (16, 32)]
    assert check_cells(cells, (), "here") == tuple(cells)
    for cell in (Cell("join", 2.0, 32, tokens=2), Cell("late", 2.0, 32), Cell("late_draft", 2.0, 32)):
        with pytest.raises(InputError, match="row 9: duplicate cell"):
            check_cells([*cells, cell], (), "here")


def test_joining_is_of_no_capture_size():
    cells = [*verify({(8, 8): 1.0}), Cell("join", 1.0, 8, tokens=1)]  # a step of 1 token would be padded to 8
    assert check_cells(cells, (8, 16), "here") == tuple(cells)


def test_a_table_needs_verify_cells():
    with pytest.raises(InputError, match="no verify cells"):
        table(draft({(1, 1): 1.0}))


def test_a_step_inside_capture_sizes_is_recorded_at_what_it_is_padded_to():
    cells = verify({(1, 8): 1.0, (1, 16): 2.0, (1, 17): 3.0})
    assert check_cells(cells, (8, 16), "here") == tuple(cells)
    with pytest.raises(InputError, match="tokens is 9, but a step of that size is padded"):
        check_cells(verify({(1, 9): 1.0}), (8, 16), "here")


def test_cells_survive_parquet():
    cells = (
        Cell("verify", 0.1, 4, tokens=2**40, context=7, num_samples=3, provenance="published"),
        Cell("draft", 1 / 3, 4, depth=5, drafter="ngram", provenance="derived"),
        Cell("host", 0.0, 1),
        Cell("hidden", 2e-4, 128, num_samples=64),
        Cell("late", 1e-4, 128, num_samples=64),
        Cell("late_draft", 1 / 7, 128, num_samples=64),
        Cell("join", 1 / 9, 128, tokens=8, num_samples=9),
    )
    assert from_parquet(to_parquet(cells), "here") == cells


@pytest.mark.parametrize("tables", [eager_tables, captured_tables])
def test_the_strategies_make_several_batches(tables):
    # The properties of this folder would be empty on tables of one cell.
    from hypothesis import find, settings

    find(tables(), lambda made: len({cell.batch for cell in made.cells}) > 2, settings=settings(database=None))
