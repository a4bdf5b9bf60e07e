from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.cost.curves import Curve, Edge
from specsim.cost.verify import VerifySurface, bucket_paid, split_tokens
from specsim.errors import InputError
from tests.cost.tables import captured_tables, eager_tables, verify


def seconds(cells, capture_sizes, batch, tokens, extrapolate=False):
    edge = Edge("t", extrapolate)
    found = VerifySurface(cells, tuple(capture_sizes)).at(batch, np.atleast_1d(np.array(tokens, np.int64)), edge)
    return found.tolist(), list(edge.notes)


def looked_up(table, batch, tokens, context):
    return table._phases.verify_seconds(batch, np.atleast_1d(np.array(tokens, np.int64)), context, table._edge)


@settings(max_examples=60)
@given(st.one_of(eager_tables(), captured_tables()))
def test_every_measured_cell_comes_back_in_bits(table):
    for cell in table.cells:
        assert looked_up(table, cell.batch, cell.tokens, cell.context).tolist() == [cell.seconds]


@settings(max_examples=60)
@given(captured_tables(rising=True), st.data())
def test_a_staircase_of_rising_buckets_never_falls(table, data):
    batches = sorted({cell.batch for cell in table.cells})
    batch = data.draw(st.sampled_from(batches))
    tokens = np.arange(batch, table.ranges.tokens[1] + 1)
    found = looked_up(table, batch, tokens, 0)
    inside = tokens <= table.meta.capture_sizes[-1]
    assert (np.diff(found[inside]) >= 0).all()
    assert (np.diff(found) >= -1e-12).all()  # between eager cells a sum of two products may round down
    for size in table.meta.capture_sizes:
        inside = found[(tokens <= size) & (tokens > max([s for s in table.meta.capture_sizes if s < size], default=0))]
        assert len(set(inside.tolist())) <= 1


@settings(max_examples=60)
@given(eager_tables(rising=True), st.data())
def test_an_eager_curve_of_rising_cells_never_falls(table, data):
    batch = data.draw(st.integers(*table.ranges.batch))
    rows = sorted({cell.batch for cell in table.cells})
    low, high = max(b for b in rows if b <= batch), min(b for b in rows if b >= batch)
    reach = [max(cell.tokens for cell in table.cells if cell.batch == b) for b in (low, high)]
    most = int(np.interp(batch, [low, high], reach)) if high > low else reach[0]
    context = data.draw(st.sampled_from(sorted({cell.context for cell in table.cells})))
    found = looked_up(table, batch, np.arange(batch, most + 1), context)
    assert (np.diff(found) >= -1e-12).all()
    measured = [cell.seconds for cell in table.cells if cell.context == context and cell.batch in (low, high)]
    assert min(measured) <= found.min()
    assert found.max() <= max(measured)


@given(st.floats(0.001, 0.999), st.data())
def test_tokens_split_between_batches_average_to_the_tokens_asked_for(weight, data):
    def span(least):
        low = data.draw(st.integers(least, 200))
        return Curve({low: 1.0, data.draw(st.integers(low, 4000)): 2.0})

    low, high = span(1), span(1)
    first = (1 - weight) * low.low + weight * high.low
    last = (1 - weight) * low.high + weight * high.high
    tokens = np.linspace(first, last, 50)
    at_low, at_high = split_tokens(tokens, weight, low, high)
    np.testing.assert_allclose((1 - weight) * at_low + weight * at_high, tokens, rtol=1e-9)
    assert (np.diff(at_low) >= -1e-6).all()
    assert (np.diff(at_high) >= -1e-6).all()
    assert low.low <= at_low.min()
    assert at_low.max() <= low.high + 1e-6


def test_between_batches_the_same_tokens_are_compared():
    # Both measured 16 tokens, at a cost that tokens alone decide and that is not linear in them.
    cells = verify({(b, t): t * t / 1e4 for b in (4, 8) for t in (8, 12, 16, 20)} | {(4, 4): 16 / 1e4})
    assert seconds(cells, (), 6, 16)[0] == [pytest.approx(16 * 16 / 1e4)]


def test_a_cost_linear_in_tokens_and_batch_comes_out_exactly_between_batches():
    def cost(batch, tokens):
        return 0.01 + 0.001 * batch + 0.0005 * tokens

    cells = verify({(b, b * n): cost(b, b * n) for b in (4, 8) for n in (1, 4, 16)})
    for tokens in (5, 8, 50, 64, 65, 80):
        assert seconds(cells, (), 5, tokens)[0] == [pytest.approx(cost(5, tokens), rel=1e-12)]


def test_the_reach_between_batches_lies_between_theirs():
    cells = verify({(b, b * n): 1.0 for b in (4, 8) for n in (1, 16)})
    assert seconds(cells, (), 5, 80)[0] == [1.0]
    with pytest.raises(InputError, match=r"verify tokens 81 at batch 5 .*up to 80"):
        seconds(cells, (), 5, 81)


def test_a_bucket_between_batches_is_read_where_it_was_measured():
    cells = verify({(32, 32): 1.0, (32, 48): 2.0, (32, 64): 3.0, (64, 64): 5.0, (64, 128): 9.0})
    sizes = (32, 48, 64, 128)
    assert seconds(cells, sizes, 48, 48)[0] == [2.0]  # 64 requests never fill 48
    assert seconds(cells, sizes, 48, 50)[0] == [4.0]  # both have 64
    assert seconds(cells, sizes, 48, 65)[0] == [9.0]  # 32 requests were not measured so far
    with pytest.raises(InputError, match=r"captured verify tokens 128 at batch 32 .*32 to 64 at batch 32"):
        seconds(cells, sizes, 32, 65)


def test_a_capture_size_without_a_cell_lies_between_its_neighbours():
    assert seconds(verify({(1, 8): 1.0, (1, 32): 4.0}), (8, 16, 32), 1, 9)[0] == [2.0]


def test_between_the_capture_limit_and_the_first_eager_cell_that_cell_is_charged_and_said():
    found, notes = seconds(verify({(1, 8): 1.0, (1, 20): 4.0, (1, 40): 8.0}), (8,), 1, [8, 9, 20, 30])
    assert found == [1.0, 4.0, 4.0, 6.0]
    assert "between the largest captured size and the first eager cell, that cell is charged" in notes


def test_an_eager_count_is_read_at_the_neighbour_that_has_eager_cells():
    cells = verify({(32, 32): 1.0, (32, 512): 2.0, (64, 64): 1.5, (64, 512): 3.0, (64, 600): 6.0, (64, 1024): 9.0})
    assert seconds(cells, (32, 64, 512), 48, 600)[0] == [6.0]
    with pytest.raises(InputError, match=r"eager verify batch 32 .*64"):
        seconds(cells, (32, 64, 512), 32, 600)


def test_a_plain_step_that_was_not_measured_is_refused():
    with pytest.raises(InputError, match=r"verify tokens 4 at batch 4 .*from 8"):
        seconds(verify({(4, 8): 1.0, (4, 16): 2.0}), (), 4, 4)


@pytest.mark.parametrize("batch", [3, 9])
def test_a_batch_outside_the_measured_ones_is_refused(batch):
    with pytest.raises(InputError, match=f"verify batch {batch} .*4 to 8"):
        seconds(verify({(4, 4): 1.0, (8, 8): 2.0}), (), batch, batch)


def test_extrapolating_takes_the_nearest_batch_and_the_last_slope():
    cells = verify({(4, 4): 1.0, (4, 8): 2.0, (8, 8): 3.0, (8, 16): 4.0})
    found, notes = seconds(cells, (), 1, [1, 8, 12], extrapolate=True)
    assert found == [1.0, 2.0, 3.0]
    assert "extrapolated beyond the measured verify batch" in notes
    assert "extrapolated beyond the measured verify tokens" in notes
    assert seconds(cells, (), 16, [16, 32], extrapolate=True)[0] == [4.0, 6.0]
    assert seconds(cells, (), 6, [24], extrapolate=True)[0] == [pytest.approx(0.5 * (2 + 12 / 4) + 0.5 * (4 + 12 / 8))]


def test_extrapolating_a_captured_table_still_pays_for_buckets():
    cells = verify({(4, 8): 2.0, (4, 16): 4.0})
    assert seconds(cells, (8, 16, 32), 4, [4, 9, 17], extrapolate=True)[0] == [2.0, 4.0, 8.0]
    assert seconds(cells, (8, 16, 32), 32, [32], extrapolate=True)[0] == [8.0]
    assert seconds(cells, (8, 16), 4, [32], extrapolate=True)[0] == [8.0]


def test_extrapolating_below_a_table_with_eager_cells_only_uses_them():
    assert seconds(verify({(4, 4): 2.0, (4, 8): 3.0}), (2,), 1, [1], extrapolate=True)[0] == [2.0]


def test_without_capture_sizes_nothing_is_padded():
    assert bucket_paid(17, ()) == 17
