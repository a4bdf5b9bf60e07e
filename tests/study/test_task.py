"""One run of a study, and its series over time."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from specsim.sim import simulate
from specsim.study.plan import Plan, Task
from specsim.study.task import ITL_FRACTIONS, run_planned, time_series
from specsim.telemetry import STEP_DTYPE


@pytest.fixture
def plan(study):
    return Plan(study())


def test_a_run_is_the_same_twice_whatever_ran_between(plan):
    task = Task(0, 4, 8, 0.0, 0)
    first = run_planned(plan, task)
    run_planned(plan, Task(0, 4, 2, 0.0, 1))
    second = run_planned(plan, task)
    assert first.summary == second.summary
    assert first.series == second.series
    assert np.array_equal(first.counts, second.counts)


def test_policies_meet_the_same_requests_in_the_same_order(plan):
    orders = []
    for policy in range(3):
        run = simulate(
            plan.trace, plan.tables[0], plan.controller(policy), plan.engine, plan.workload(plan.tasks[0]), seed=1
        )
        orders.append(sorted(run.requests["index"].tolist()))
    assert orders[0] == orders[1] == orders[2]


def test_a_record_says_where_it_belongs(plan):
    task = Task(0, 3, 8, 0.0, 1)
    record = run_planned(plan, task)
    assert (record.table, record.policy, record.batch, record.rate, record.seed) == (
        "example-linear", "dcut@strong", 8, 0.0, 1,
    )  # fmt: skip
    assert record.key == plan.key(task)
    assert record.notes == ("the cost table is a made-up example",)
    assert record.arm_share == {"strong": 1.0, "weak": 0.0, "none": 0.0}
    assert len(record.itl_seconds) == len(ITL_FRACTIONS)
    assert record.itl_seconds == sorted(record.itl_seconds)


def test_only_the_first_seed_keeps_a_series(plan):
    assert run_planned(plan, Task(0, 3, 8, 0.0, 0)).series
    assert run_planned(plan, Task(0, 3, 8, 0.0, 1)).series == {}


def test_goodput_is_there_when_bounds_are(study):
    assert math.isnan(run_planned(Plan(study()), Task(0, 3, 8, 0.0, 0)).summary.goodput)
    one_bound = run_planned(Plan(study(slo={"tpot_seconds": 10.0})), Task(0, 3, 8, 0.0, 0)).summary
    assert one_bound.goodput == pytest.approx(one_bound.request_throughput)
    none_meets = run_planned(Plan(study(slo={"tpot_seconds": 1e-9})), Task(0, 3, 8, 0.0, 0)).summary
    assert none_meets.goodput == 0.0


@pytest.fixture
def run(plan):
    """A run whose steps are replaced in the tests."""
    return simulate(
        plan.trace, plan.tables[0], plan.controller(1), plan.engine, plan.workload(plan.tasks[0]), record_steps=True
    )


def steps(*rows):
    table = np.zeros(len(rows), STEP_DTYPE)
    for index, (started_at, batch, arm, drafted, verified, emitted) in enumerate(rows):
        table["started_at"][index], table["batch"][index], table["arm"][index] = started_at, batch, arm
        table["num_drafted"][index], table["num_verified"][index], table["num_emitted"][index] = (
            drafted,
            verified,
            emitted,
        )
    return table


def test_a_short_series_has_one_point_a_decode_step(run):
    run = dataclasses.replace(
        run, steps=steps((0.0, 0, -1, 0, 0, 0), (0.5, 2, 1, 8, 4, 3), (1.0, 2, -1, 0, 0, 2), (1.5, 1, 0, 4, 1, 1))
    )
    series = time_series(run)
    assert series["started_at"] == [0.5, 1.0, 1.5]  # the step that only prefilled is none
    assert series["budget_ratio"][0] == 0.5
    assert math.isnan(series["budget_ratio"][1])
    assert series["budget_ratio"][2] == 0.25
    assert series["emitted_per_request"] == [1.5, 1.0, 1.0]
    assert series["arm"] == [1.0, -1.0, 0.0]
    assert series["cumulative_tokens"] == [0.0, 3.0, 5.0]  # before the step


def test_a_long_series_is_binned_and_loses_no_token(run):
    rows = [(0.1 * index, 2, index % 3 - 1, 4, 2, 3) for index in range(1001)]
    series = time_series(dataclasses.replace(run, steps=steps(*rows)))
    assert len(series["started_at"]) == 300
    assert set(series["budget_ratio"]) == {0.5}
    assert series["emitted_per_request"] == pytest.approx([1.5] * 300)
    assert series["cumulative_tokens"][-1] == 3 * round(series["started_at"][-1] / 0.1)


def test_a_bin_shows_the_arm_it_used_most(run):
    rows = [(float(index), 1, 1 if index % 4 else 0, 4, 2, 1) for index in range(1200)]
    assert set(time_series(dataclasses.replace(run, steps=steps(*rows)))["arm"]) == {1.0}


def test_a_run_without_steps_has_no_series(run):
    assert time_series(dataclasses.replace(run, steps=None)) == {}
    assert time_series(dataclasses.replace(run, steps=steps())) == {}


def test_seeds_draw_other_requests(plan):
    first, second = (run_planned(plan, Task(0, 3, 8, 0.0, seed)) for seed in (0, 1))
    assert first.summary.token_throughput != second.summary.token_throughput


def test_the_notes_of_a_run_are_its_own(study, world):
    plan = Plan(study(tables=[str(world / "staircase")], batches=[8, 32], extrapolate=True))
    outside, inside = (run_planned(plan, Task(0, 1, batch, 0.0, 0)) for batch in (32, 8))
    assert len(outside.notes) > len(inside.notes) == 1
