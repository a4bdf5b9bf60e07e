"""Whole steps at measured points, in numbers written out."""

from __future__ import annotations

import math

import pytest

from specsim.cost import Cell
from specsim.cost.whole import by_request, deepest, verify_steps, whole_steps
from tests.cost.tables import draft, table, verify

CELLS = [
    *verify({(1, 1): 0.010, (1, 8): 0.020, (2, 2): 0.012, (2, 16): 0.036}),
    *draft({(1, 3): 0.001, (1, 7): 0.004, (2, 7): 0.006}),
    *draft({(1, 7): 0.100}, context=64),
    Cell("host", 0.002, 1),
    Cell("plan", 0.001, 1),
    Cell("late", 5.0, 1),
]


def points(steps):
    return [(step.batch, step.tokens, round(step.seconds, 6), round(step.ratio, 6)) for step in steps]


def test_verifying_alone_is_told_in_plain_passes():
    assert points(verify_steps(table(CELLS), 0)) == [
        (1, 1, 0.010, 1.0),
        (1, 8, 0.020, 2.0),
        (2, 2, 0.012, 1.0),
        (2, 16, 0.036, 3.0),
    ]


def test_a_whole_step_is_the_deepest_draft_at_the_nearest_context_plan_verify_and_host():
    assert deepest(table(CELLS), "block") == 7
    assert points(whole_steps(table(CELLS), 0, "block")) == [
        (1, 1, 0.017, round(17 / 12, 6)),
        (1, 8, 0.027, round(27 / 12, 6)),
        (2, 2, 0.018, 1.5),
        (2, 16, 0.042, 3.5),
    ]


def test_host_work_beside_drafting_is_charged_as_far_as_it_takes_longer():
    hidden = [Cell("hidden", 0.003, 1), Cell("hidden", 0.010, 2)]
    steps = whole_steps(table([*CELLS, *hidden]), 0, "block")
    assert [round(step.seconds, 6) for step in steps] == [0.017, 0.027, 0.018 + 0.004, 0.042 + 0.004]


def test_a_batch_that_was_not_drafted_for_has_no_whole_step():
    cells = [*verify({(1, 1): 0.010, (2, 2): 0.010}), *draft({(1, 7): 0.010})]
    assert [step.batch for step in whole_steps(table(cells), 0, "block")] == [1]


def test_the_plain_step_of_captured_sizes_is_the_smallest_bucket_that_holds_the_batch():
    steps = verify_steps(table(verify({(3, 8): 0.010, (3, 16): 0.025}), (8, 16)), 0)
    assert [step.ratio for step in steps] == pytest.approx([1.0, 2.5])


def test_without_a_plain_step_there_is_no_ratio():
    assert all(math.isnan(step.ratio) for step in verify_steps(table(verify({(1, 8): 0.010, (1, 9): 0.020})), 0))


def test_steps_go_by_tokens_a_request_where_batches_share_them():
    assert by_request(verify_steps(table(verify({(1, 1): 1.0, (1, 4): 1.0, (2, 2): 1.0, (2, 8): 1.0})), 0))
    assert not by_request(
        verify_steps(table(verify({(1, 8): 1.0, (1, 16): 1.0, (3, 8): 1.0, (3, 16): 1.0}), (8, 16)), 0)
    )
