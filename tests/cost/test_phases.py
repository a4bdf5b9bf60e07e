from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.cost import Cell
from specsim.cost.curves import Edge
from specsim.cost.phases import BatchCurve, DraftSurface, JoinSurface, TokenCurve
from specsim.errors import InputError
from tests.cost.tables import SECONDS, draft, drafter, table, verify

GRID = {(2, 4): 1.0, (2, 8): 2.0, (6, 4): 3.0, (6, 8): 6.0}


def test_drafting_is_interpolated_over_batch_and_depth():
    surface = DraftSurface(draft(GRID))
    at = [surface.at(batch, depth, True, Edge("t")) for batch, depth in ((2, 4), (6, 8), (4, 4), (2, 6), (4, 6))]
    assert at == [1.0, 6.0, 2.0, 1.5, 3.0]


@given(st.dictionaries(st.tuples(st.integers(1, 9), st.integers(1, 9)), SECONDS, min_size=1))
def test_every_draft_cell_comes_back_in_bits(grid):
    surface = DraftSurface(draft(grid))
    assert {key: surface.at(*key, True, Edge("t")) for key in grid} == grid


def test_below_the_smallest_depth_a_pass_a_token_is_charged_in_proportion():
    edge = Edge("t")
    assert DraftSurface(draft(GRID)).at(2, 1, True, edge) == 0.25
    assert list(edge.notes) == ["drafting by block below depth 4, the smallest measured, is charged in proportion"]


def test_below_the_smallest_depth_a_block_is_charged_whole():
    edge = Edge("t")
    assert DraftSurface(draft(GRID)).at(2, 1, False, edge) == 1.0
    assert "one pass proposes the whole block" in next(iter(edge.notes))


@pytest.mark.parametrize(
    ("batch", "depth", "complaint"),
    [
        (1, 4, "batch of drafting by block 1 .*2 to 6"),
        (7, 4, "batch of drafting by block 7 .*2 to 6"),
        (2, 9, "depth of drafting by block 9 .*up to 8"),
    ],
)
def test_drafting_outside_the_measured_range_is_refused(batch, depth, complaint):
    with pytest.raises(InputError, match=complaint):
        DraftSurface(draft(GRID)).at(batch, depth, True, Edge("t"))


def test_drafting_beyond_the_range_follows_the_last_slope_when_allowed():
    edge = Edge("t", extrapolate=True)
    surface = DraftSurface(draft(GRID))
    assert [surface.at(b, d, True, edge) for b, d in ((1, 4), (8, 4), (2, 12))] == [1.0, 4.0, 3.0]
    assert len(edge.notes) == 2


def test_planning_and_host_work_are_interpolated_over_batch_and_refused_outside():
    curve = BatchCurve([Cell("host", 1.0, 2), Cell("host", 3.0, 4)])
    assert [curve.at(batch, Edge("t")) for batch in (2, 3, 4)] == [1.0, 2.0, 3.0]
    for batch in (1, 5):
        with pytest.raises(InputError, match=f"host batch {batch} .*2 to 4"):
            curve.at(batch, Edge("t"))
    assert BatchCurve([]).at(1000, Edge("t")) == 0.0


def test_lateness_beyond_the_measured_batches_is_read_at_the_nearest():
    curve = BatchCurve([Cell("late", 1.0, 2), Cell("late", 3.0, 4)])
    assert [curve.nearest(batch) for batch in (0, 1, 2, 3, 4, 5, 999)] == [1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0]
    assert BatchCurve([Cell("late", 1.0, 8)]).nearest(3) == 1.0
    assert BatchCurve([]).nearest(3) == 0.0


def join(grid: dict[tuple[int, int], float]) -> JoinSurface:
    """A look-up from seconds by (batch, requests)."""
    return JoinSurface([Cell("join", seconds, batch, tokens=many) for (batch, many), seconds in grid.items()])


JOIN = {(32, 1): 1.0, (32, 3): 2.0, (64, 1): 3.0, (64, 5): 11.0}


@pytest.mark.parametrize(
    ("batch", "requests", "seconds"),
    [
        (32, 2, 1.5),  # between 1 and 3
        (64, 2, 5.0),  # between 1 and 5
        (48, 2, 3.25),  # halfway between both
        (40, 1, 1.5),  # a quarter of the way
        (1, 2, 1.5),  # below the smallest batch: that one
        (999, 2, 5.0),  # beyond the largest: that one
        (32, 7, 4.0),  # .5 each beyond 3
        (64, 7, 15.0),  # 2 each beyond 5
        (48, 7, 9.5),
        (32, 0, 0.0),
        (48, 0, 0.0),
    ],
)
def test_joining_is_interpolated_over_batch_and_number_and_goes_on_as_the_last_ones_cost(batch, requests, seconds):
    assert join(JOIN).at(batch, requests) == seconds


def test_where_one_number_of_joining_requests_was_measured_others_are_in_proportion():
    assert [join({(16, 4): 2.0}).at(16, many) for many in (0, 1, 2, 4, 8)] == [0.0, 0.5, 1.0, 2.0, 4.0]


def test_more_requests_that_join_never_cost_less_than_the_most_measured():
    assert [join({(16, 1): 3.0, (16, 4): 2.0}).at(16, many) for many in (4, 8)] == [2.0, 2.0]


def test_joining_costs_nothing_where_it_was_not_measured():
    assert [JoinSurface([]).at(batch, many) for batch in (1, 64) for many in (0, 1, 9)] == [0.0] * 6


@given(st.dictionaries(st.tuples(st.integers(1, 9), st.integers(1, 9)), SECONDS, min_size=1))
def test_every_join_cell_comes_back_in_bits_and_nobody_costs_nothing(grid):
    surface = join(grid)
    assert {key: surface.at(*key) for key in grid} == grid
    assert [surface.at(batch, 0) for batch in range(12)] == [0.0] * 12


@given(st.dictionaries(st.integers(1, 999), SECONDS, min_size=1))
def test_every_prefill_cell_comes_back_in_bits(points):
    curve = TokenCurve([Cell("prefill", seconds, tokens=tokens) for tokens, seconds in points.items()])
    assert {tokens: curve.at(tokens, Edge("t")) for tokens in points} == points
    assert curve.at(0, Edge("t")) == 0.0


def test_drafting_measured_at_fewer_contexts_than_verifying_says_so():
    wide = verify({(1, 1): 1.0, (1, 9): 1.5}, 0) + verify({(1, 1): 2.0, (1, 9): 2.5}, 640)
    costs = table(wide + draft({(1, 8): 0.5}, context=64))
    costs.step_cost(drafter(), 1, 8, 64.0)
    assert len(costs.notes) == 1
    assert costs.phases(drafter(), 1, 8, 0, 640.0).draft == 0.5
    assert "drafting by block was measured at context 64 only: it is charged the same at every context" in costs.notes
    short = table(wide + draft({(1, 8): 0.5}) + draft({(1, 8): 0.5}, context=64))
    with pytest.raises(InputError, match=r"context of drafting by block 640 .*up to 64"):
        short.step_cost(drafter(), 1, 8, 640.0)
