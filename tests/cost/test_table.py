from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.cost import Cell, CostTable, Ranges
from specsim.cost.examples import linear_table
from specsim.errors import InputError
from tests.cost.tables import captured_tables, draft, drafter, eager_tables, table, verify

EXAMPLE = "the cost table is a made-up example"
PLAIN = verify({(1, 1): 1.0, (1, 16): 2.0, (4, 4): 1.5, (4, 64): 5.0})
LATE = [Cell("late", 0.25, 1), Cell("late", 0.75, 4)]
LATE_DRAFT = [Cell("late_draft", 0.5, 1), Cell("late_draft", 2.0, 4)]
JOIN = [Cell("join", 0.125, 1, tokens=1), Cell("join", 0.5, 4, tokens=1), Cell("join", 0.75, 4, tokens=2)]
CHANGES = [*LATE, *LATE_DRAFT, *JOIN]


@settings(max_examples=60)
@given(
    st.one_of(eager_tables(), captured_tables()),
    st.floats(0, 3),
    st.integers(1, 8),
    st.floats(0, 1e-2),
    st.floats(0, 1e-2),
    st.data(),
)
def test_phases_add_up_to_the_step_in_bits(costs, fraction, depth, plan, host, data):
    spans = [Cell(phase, s, batch) for phase, s in (("plan", plan), ("host", host)) for batch in (1, 1000)]
    costs = CostTable.from_cells(costs.meta.model_copy(update={"ranges": None}), [*costs.cells, *spans], True)
    batch = data.draw(st.integers(*costs.ranges.batch))
    context = data.draw(st.floats(0, costs.ranges.context[1]))
    spec = drafter(target_fraction=fraction, passes=data.draw(st.sampled_from(["per_depth", "per_block"])))
    seconds = costs.step_cost(spec, batch, depth, context).seconds
    assert seconds.shape == (batch * depth + 1,)
    assert [costs.phases(spec, batch, depth, k, context).total for k in range(len(seconds))] == seconds.tolist()
    assert costs.phases(None, batch, 0, 0, context).total == costs.step_cost(None, batch, 0, context).seconds[0]


def test_a_step_is_draft_plus_plan_plus_verify_plus_host():
    cells = [*PLAIN, *draft({(1, 8): 0.25, (4, 8): 0.5}), Cell("plan", 0.125, 1), Cell("plan", 0.125, 4)]
    costs = table([*cells, Cell("host", 0.5, 1), Cell("host", 1.5, 4)])
    found = costs.phases(drafter(), 2, 8, 0, 0.0)
    assert found.draft == pytest.approx(0.25 + 0.25 / 3)
    assert (found.plan, found.host) == (0.125, pytest.approx(0.5 + 1 / 3))
    plain = costs.phases(None, 2, 0, 0, 0.0)
    assert (plain.draft, plain.plan, plain.host) == (0.0, 0.0, found.host)


def test_step_costs_are_contiguous_read_only_and_cached():
    costs = linear_table(0.01, 0.001, drafters={"block": 0.005})
    first = costs.step_cost(drafter(), 8, 15, 65.0)
    assert first.seconds.dtype == np.float64
    assert first.seconds.flags.c_contiguous
    with pytest.raises(ValueError, match="read-only"):
        first.seconds[0] = 0.0
    assert costs.step_cost(drafter(), 8, 15, 128.0) is first  # the same grid cell
    assert costs.step_cost(drafter(), 8, 15, 64.0) is not first


def test_contexts_are_rounded_up_to_the_grid_and_interpolated():
    costs = table(verify({(1, 1): 1.0}, 0) + verify({(1, 1): 3.0}, 256))
    at = [costs.step_cost(None, 1, 0, context).seconds[0] for context in (0, 1, 64, 65, 250, 256)]
    assert at == [1.0, 1.5, 1.5, 2.0, 3.0, 3.0]
    assert costs.notes == [EXAMPLE]


def test_a_context_below_the_smallest_measured_is_charged_as_that_one():
    costs = table(verify({(1, 1): 1.0}, 128) + verify({(1, 1): 3.0}, 256))
    assert costs.step_cost(None, 1, 0, 10.0).seconds[0] == 1.0


def test_a_context_beyond_the_grid_cell_of_the_largest_is_refused():
    costs = table(verify({(1, 1): 1.0}, 0) + verify({(1, 1): 3.0}, 200))
    assert costs.step_cost(None, 1, 0, 256.0).seconds[0] == 3.0
    with pytest.raises(InputError, match=r"context 320 is outside what was measured \(up to 200\)"):
        costs.step_cost(None, 1, 0, 257.0)


def test_a_context_range_that_ends_on_the_grid_ends_there():
    costs = table(verify({(1, 1): 1.0}, 0) + verify({(1, 1): 3.0}, 128))
    assert costs.step_cost(None, 1, 0, 128.0).seconds[0] == 3.0
    with pytest.raises(InputError, match="context 192"):
        costs.step_cost(None, 1, 0, 128.5)


def test_extrapolating_in_context_follows_the_last_slope_and_is_noted():
    costs = table(verify({(1, 1): 1.0}, 0) + verify({(1, 1): 3.0}, 128), extrapolate=True)
    assert costs.step_cost(None, 1, 0, 256.0).seconds[0] == 5.0
    assert "extrapolated beyond the measured context" in costs.notes


def test_a_table_of_one_context_says_that_it_charges_all_contexts_alike():
    costs = table(verify({(1, 1): 1.0}, 512))
    assert costs.step_cost(None, 1, 0, 512.0).seconds[0] == 1.0
    assert costs.notes == [EXAMPLE]
    costs.step_cost(None, 1, 0, 64.0)
    assert costs.notes[1:] == ["the cost table resolves no context: a step is charged the same at every context"]


def test_an_empty_batch_costs_nothing():
    assert linear_table(0.01, 0.001).step_cost(None, 0, 0, 0.0).seconds.tolist() == [0.0]
    assert linear_table(0.01, 0.001).phases(None, 0, 0, 0, 0.0).total == 0.0


def test_a_drafter_without_cells_is_priced_from_its_hint_and_that_is_said():
    spec = drafter("small", target_fraction=0.25)
    costs = table(PLAIN)
    assert costs.phases(spec, 4, 8, 0, 0.0).draft == 0.25 * 1.5
    assert costs.notes == [EXAMPLE, "drafting by small is derived from hint: 0.25 of a plain step a pass"]
    per_depth = drafter("small", target_fraction=0.25, passes="per_depth")
    assert costs.phases(per_depth, 4, 8, 0, 0.0).draft == 8 * 0.25 * 1.5


def test_a_hint_counts_the_host_work_of_the_plain_step():
    costs = table([*PLAIN, Cell("host", 0.5, 1), Cell("host", 0.5, 4)])
    assert costs.phases(drafter(target_fraction=0.5), 4, 8, 0, 0.0).draft == 1.0


def test_a_drafter_without_cells_or_hint_is_refused_with_the_remedy():
    with pytest.raises(InputError, match=r"no draft costs of drafter small .*--draft-cost small=NAME \(NAME: block\)"):
        table([*PLAIN, *draft({(4, 8): 0.5})]).step_cost(drafter("small"), 4, 8, 0.0)


def test_a_measured_drafter_is_not_priced_from_its_hint():
    costs = table([*PLAIN, *draft({(4, 8): 0.5})])
    assert costs.phases(drafter(target_fraction=9.0), 4, 8, 0, 0.0).draft == 0.5


def test_pricing_a_drafter_as_another_is_a_what_if_and_is_said():
    costs = table([*PLAIN, *draft({(4, 8): 0.5})])
    what_if = costs.with_draft_costs({"small": "block"})
    assert what_if.phases(drafter("small"), 4, 8, 0, 0.0).draft == 0.5
    assert "what-if: drafting by small is priced as block" in what_if.notes
    assert costs.notes == [EXAMPLE]
    again = what_if.with_draft_costs({"other": "block"})
    assert again.phases(drafter("small"), 4, 8, 0, 0.0).draft == 0.5


def test_pricing_as_a_drafter_that_the_table_lacks_is_refused():
    with pytest.raises(InputError, match="cannot price small as blok: it has block"):
        table([*PLAIN, *draft({(4, 8): 0.5})]).with_draft_costs({"small": "blok"})


def test_a_fresh_table_answers_the_same_and_has_said_nothing():
    costs = table([*PLAIN, *draft({(4, 8): 0.5})], extrapolate=True).with_draft_costs({"small": "block"})
    before = costs.step_cost(drafter("small"), 5, 8, 0.0).seconds
    fresh = costs.fresh()
    assert "extrapolated beyond the measured verify batch" in costs.notes
    assert fresh.notes == [EXAMPLE, "what-if: drafting by small is priced as block"]
    assert fresh.step_cost(drafter("small"), 5, 8, 0.0).seconds.tolist() == before.tolist()


def test_a_pickled_table_answers_the_same():
    costs = table([*PLAIN, *draft({(4, 8): 0.5})], extrapolate=True).with_draft_costs({"small": "block"})
    copy = pickle.loads(pickle.dumps(costs))
    asked = (drafter("small"), 5, 8, 0.0)
    assert copy.step_cost(*asked).seconds.tolist() == costs.step_cost(*asked).seconds.tolist()
    assert copy.notes == costs.notes


def test_prefill_is_interpolated_from_nothing_at_no_tokens():
    costs = table([*PLAIN, Cell("prefill", 1.0, tokens=100), Cell("prefill", 4.0, tokens=200)])
    found = [costs.prefill_seconds(tokens, 0.0) for tokens in (0, 50, 100, 150, 200)]
    assert found == [0.0, 0.5, 1.0, 2.5, 4.0]
    assert costs.notes == [EXAMPLE]


def test_prefill_beyond_the_measured_tokens_is_several_passes_and_is_said():
    costs = table([*PLAIN, Cell("prefill", 1.0, tokens=100), Cell("prefill", 4.0, tokens=200)])
    assert costs.prefill_seconds(450, 0.0) == 2 * 4.0 + 0.5
    assert "prefill of more than 200 tokens, the most measured, is charged as several passes" in costs.notes


def test_prefill_alone_pays_the_pass_as_well():
    costs = table([*PLAIN, Cell("prefill", 1.0, tokens=100)])
    assert costs.prefill_seconds(100, 0.0, alone=True) == 1.0 + 1.0
    assert costs.prefill_seconds(0, 0.0, alone=True) == 0.0


def test_a_table_without_prefill_cells_cannot_price_prompts():
    with pytest.raises(InputError, match="no prefill cells"):
        table(PLAIN).prefill_seconds(10, 0.0)


def test_switching_is_priced_from_cells_then_from_the_hint():
    cells = [*PLAIN, Cell("prefill", 10.0, tokens=100), Cell("switch", 3.0, tokens=30, drafter="block")]
    costs = table(cells)
    assert costs.switch_seconds(drafter(kind="model"), 10) == 1.0
    assert costs.switch_seconds(drafter("small", kind="model", target_fraction=0.25), 10) == 0.25
    assert "switching to small is derived from its hint as a share of the target's prefill" in costs.notes
    assert costs.switch_seconds(drafter(kind="model"), 1) == pytest.approx(0.1)
    assert costs.switch_seconds(drafter("small", kind="model"), 0) == 0.0
    with pytest.raises(InputError, match="no switch costs of drafter small"):
        costs.switch_seconds(drafter("small", kind="model"), 1)


def test_a_step_that_nothing_was_launched_ahead_for_takes_longer_by_batch_and_by_whether_it_drafts():
    costs = table([*PLAIN, *CHANGES])
    assert [costs.late_seconds(batch) for batch in (1, 2, 3, 4)] == pytest.approx(
        [0.25, 0.25 + 0.5 / 3, 0.25 + 1.0 / 3, 0.75]
    )
    assert [costs.late_seconds(batch, 0.1) for batch in (1, 2, 3, 4)] == [0.5, 1.0, 1.5, 2.0]


def test_requests_that_join_cost_by_batch_and_by_how_many_they_are():
    costs = table([*PLAIN, *CHANGES])
    assert [costs.join_seconds(4, many) for many in (0, 1, 2, 3, 6)] == [0.0, 0.5, 0.75, 1.0, 1.75]
    assert [costs.join_seconds(1, many) for many in (0, 1, 2)] == [0.0, 0.125, 0.25]
    assert costs.join_seconds(3, 1) == pytest.approx(0.125 + 2 / 3 * 0.375)


def test_beyond_the_measured_batches_a_change_is_read_at_the_nearest_and_nothing_is_said():
    costs = table([*PLAIN, *CHANGES])
    assert [costs.late_seconds(batch) for batch in (0, 5, 999)] == [0.25, 0.75, 0.75]
    assert [costs.late_seconds(batch, 0.1) for batch in (0, 5, 999)] == [0.5, 2.0, 2.0]
    assert [costs.join_seconds(batch, 2) for batch in (0, 5, 999)] == [0.25, 0.75, 0.75]
    assert [costs.gain_of_launching_ahead(batch) for batch in (0, 5, 999)] == [0.25, 0.5, 0.5]
    assert costs.notes == [EXAMPLE]


@pytest.mark.parametrize(
    ("cells", "charges"), [([], False), (LATE, True), (LATE_DRAFT, True), (JOIN, True), ([Cell("host", 1.0)], False)]
)
def test_a_table_charges_changes_if_it_has_cells_of_any_of_them(cells, charges):
    assert table([*PLAIN, *cells]).charges_changes is charges


def test_a_table_without_cells_of_changes_charges_nothing_for_them():
    costs = table([*PLAIN, Cell("host", 1.0, 1), Cell("host", 1.0, 4), Cell("plan", 1.0, 1), Cell("plan", 1.0, 4)])
    for batch in (1, 4, 999):
        assert costs.late_seconds(batch) == costs.late_seconds(batch, 0.1) == 0.0
        assert costs.join_seconds(batch, 3) == 0.0
        assert costs.gain_of_launching_ahead(batch) is None


def test_the_gain_of_launching_ahead_is_a_share_of_the_plain_pass_alone():
    host = [Cell("host", 1.0, 1), Cell("host", 1.0, 4)]
    costs = table([*PLAIN, *host, *LATE, *LATE_DRAFT, *JOIN])
    assert [costs.gain_of_launching_ahead(batch) for batch in (1, 4)] == [0.25, 0.5]
    between = costs.late_seconds(2) / costs.phases(None, 2, 0, 0, 0.0).verify
    assert costs.gain_of_launching_ahead(2) == between
    assert 0.25 < between < 0.5


def test_the_gain_of_launching_ahead_is_not_known_from_steps_that_draft_or_from_who_joins():
    assert table([*PLAIN, *LATE_DRAFT, *JOIN]).gain_of_launching_ahead(1) is None


def test_the_gain_of_launching_ahead_is_a_share_of_what_the_pass_pays_at_the_smallest_context():
    costs = table([*verify({(3, 8): 2.0}, 64), *verify({(3, 8): 8.0}, 640), Cell("late", 0.5, 3)], [8])
    assert costs.gain_of_launching_ahead(3) == 0.25


def test_looking_up_the_gain_of_launching_ahead_says_nothing():
    costs = table([*verify({(4, 4): 2.0, (4, 8): 3.0}), Cell("late", 0.5, 4)], [2])
    assert costs.gain_of_launching_ahead(4) == 0.25
    assert costs.notes == [EXAMPLE]
    costs.step_cost(None, 4, 0, 0.0)
    assert len(costs.notes) > 1  # that a pass beyond the capture sizes is eager


def test_launching_ahead_that_gains_nothing_is_no_gain_that_is_not_known():
    assert table([*PLAIN, Cell("late", 0.0, 4)]).gain_of_launching_ahead(4) == 0.0


@settings(max_examples=60)
@given(st.one_of(eager_tables(), captured_tables()), st.integers(1, 8), st.data())
def test_what_changes_cost_is_in_no_price_that_decides(costs, depth, data):
    meta = costs.meta.model_copy(update={"ranges": None})
    batch, fraction = data.draw(st.integers(*costs.ranges.batch)), data.draw(st.floats(0, 3))
    context = data.draw(st.floats(0, costs.ranges.context[1]))
    spec = drafter(target_fraction=fraction, kind="model")
    found = []
    for changes in ([], CHANGES):
        made = CostTable.from_cells(meta, [*costs.cells, Cell("prefill", 1.0, tokens=9), *changes], True)
        step = made.step_cost(spec, batch, depth, context)
        plain = made.step_cost(None, batch, 0, context).seconds
        phases = [made.phases(spec, batch, depth, verified, context) for verified in range(len(step.seconds))]
        phases.append(made.phases(None, batch, 0, 0, context))
        extra = (made.prefill_seconds(7, context, alone=True), made.switch_seconds(spec, 5))
        arrays = [array.tobytes() for array in (step.seconds, step.envelope, plain)]
        found.append((arrays, phases, extra, made.notes, made.ranges))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "copied",
    [
        lambda costs: pickle.loads(pickle.dumps(costs)),
        lambda costs: costs.fresh(),
        lambda costs: costs.with_draft_costs({"small": "block"}),
    ],
    ids=["pickled", "fresh", "what_if"],
)
def test_a_copy_of_a_table_charges_the_same_for_changes(copied):
    costs = table([*PLAIN, *draft({(4, 8): 0.5}), *CHANGES])
    assert costs.gain_of_launching_ahead(4) == 0.5  # looked up before it is copied
    copy = copied(costs)
    assert copy.charges_changes
    assert (copy.late_seconds(4), copy.late_seconds(4, 0.1), copy.join_seconds(4, 2)) == (0.75, 2.0, 0.75)
    assert (copy.gain_of_launching_ahead(4), copy.gain_of_launching_ahead(1)) == (0.5, 0.25)


def test_a_saved_table_charges_the_same_for_changes(tmp_path):
    table([*PLAIN, *CHANGES]).save(tmp_path / "costs")
    costs = CostTable.open(tmp_path / "costs")
    assert costs.cells == (*PLAIN, *CHANGES)
    assert (costs.late_seconds(4), costs.late_seconds(4, 0.1), costs.join_seconds(4, 2)) == (0.75, 2.0, 0.75)
    assert costs.gain_of_launching_ahead(4) == 0.5


@pytest.mark.parametrize("kind", ["ngram", "early_exit"])
def test_a_drafter_without_a_cache_of_its_own_switches_for_free(kind):
    assert table(PLAIN).switch_seconds(drafter(kind=kind), 100) == 0.0


@pytest.mark.parametrize(
    "asked",
    [
        lambda costs: costs.phases(drafter(target_fraction=0.1), 4, 2, 9, 0.0),
        lambda costs: costs.phases(drafter(target_fraction=0.1), 4, 2, -1, 0.0),
        lambda costs: costs.step_cost(None, -1, 0, 0.0),
        lambda costs: costs.step_cost(drafter(target_fraction=0.1), 1, -1, 0.0),
        lambda costs: costs.step_cost(None, 1, 0, -65.0),
    ],
)
def test_impossible_questions_are_refused(asked):
    with pytest.raises(ValueError, match=r"must not be negative|drafts verified of 8"):
        asked(table(PLAIN))


def test_ranges_default_to_the_span_of_the_verify_cells():
    costs = table(verify({(2, 2): 1.0, (4, 64): 2.0}, 0) + verify({(2, 2): 1.0}, 100))
    assert costs.ranges == Ranges(batch=(2, 4), tokens=(2, 64), context=(0, 100))


@pytest.mark.parametrize(
    ("ranges", "complaint"),
    [
        ({"batch": (1, 64)}, "batch is"),
        ({"tokens": (1, 65)}, "tokens is"),
        ({"context": (0, 50)}, "context is"),
        ({"context": (0, 101)}, "context is"),
        ({"context": (1, 100)}, "context is"),
    ],
)
def test_declared_ranges_that_the_cells_do_not_bear_out_are_refused(ranges, complaint):
    cells = verify({(2, 2): 1.0, (4, 64): 2.0}, 0) + verify({(2, 2): 1.0}, 100)
    span = {"batch": (2, 4), "tokens": (2, 64), "context": (0, 100)}
    with pytest.raises(InputError, match=f"ranges: {complaint}"):
        table(cells, ranges=Ranges(**span | ranges))


def test_a_table_that_resolves_no_context_may_declare_how_far_it_reaches():
    costs = table(verify({(1, 1): 1.0}), ranges=Ranges(batch=(1, 1), tokens=(1, 1), context=(0, 500)))
    assert costs.step_cost(None, 1, 0, 500.0).seconds[0] == 1.0
    assert "the cost table resolves no context: a step is charged the same at every context" in costs.notes
    with pytest.raises(InputError, match="context 576"):
        costs.step_cost(None, 1, 0, 513.0)


def test_work_that_short_drafting_does_not_hide_is_charged_to_planning():
    drafts = draft({(1, 1): 0.25, (1, 4): 1.0, (4, 1): 0.25, (4, 4): 2.0})
    cells = [*PLAIN, *drafts, Cell("plan", 0.125, 1), Cell("plan", 0.125, 4), Cell("hidden", 0.5, 1)]
    costs, without = table(cells), table(cells[:-1])
    spec = drafter()
    for batch, depth, more in [(1, 1, 0.25), (1, 2, 0.0), (1, 4, 0.0), (4, 1, 0.25), (4, 4, 0.0)]:
        assert costs.phases(spec, batch, depth, depth, 0).plan == 0.125 + more
        apart = costs.step_cost(spec, batch, depth, 0).seconds - without.step_cost(spec, batch, depth, 0).seconds
        assert apart == pytest.approx(np.full(batch * depth + 1, more))
    assert costs.phases(None, 1, 0, 0, 0) == without.phases(None, 1, 0, 0, 0)


def test_a_late_step_has_less_to_lose_where_drafting_was_too_short_to_hide_the_host():
    costs = table([*PLAIN, *LATE_DRAFT, Cell("hidden", 0.75, 1), Cell("hidden", 3.0, 4)])
    assert [costs.late_seconds(1, seconds) for seconds in (0.0, 0.5, 0.75, 9.0)] == [0.0, 0.25, 0.5, 0.5]
    assert [costs.late_seconds(4, seconds) for seconds in (0.0, 2.0, 3.0)] == [0.0, 1.0, 2.0]
