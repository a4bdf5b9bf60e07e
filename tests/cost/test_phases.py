from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.cost import Cell
from specsim.cost.curves import Edge
from specsim.cost.phases import BatchCurve, DraftSurface, TokenCurve
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
