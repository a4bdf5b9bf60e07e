"""Measured beside predicted: buckets, means and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specsim.core import StepSeconds
from specsim.sim.rerun import RerunStep
from specsim.study.parity.measures import Pair, bucket, phase_seconds, step_seconds


def step(batch, measured, table, **changes):
    values = {"index": 0, "arm": 0, "depth": 1, "budget": 0, "num_verify": np.zeros(batch, np.int64), "plan_hash": 0}
    values |= {"num_emitted": batch, "tokens_paid": batch} | changes
    return RerunStep(batch=batch, seconds=StepSeconds(**measured), table_seconds=StepSeconds(**table), **values)


@pytest.mark.parametrize(
    ("batch", "name"), [(1, "1"), (2, "2"), (3, "3-4"), (4, "3-4"), (5, "5-8"), (8, "5-8"), (9, "9-16"), (64, "33-64")]
)
def test_buckets_run_from_one_power_of_two_to_the_next(batch, name):
    assert bucket(batch) == name


def test_steps_are_averaged_by_batch_and_those_with_prompts_apart():
    steps = [
        step(3, {"verify": 0.004}, {"verify": 0.005}),
        step(4, {"verify": 0.006}, {"verify": 0.005}),
        step(1, {"verify": 0.002}, {"verify": 0.001}),
        step(4, {"verify": 0.008, "prefill": 0.002}, {"verify": 0.010}),
        step(0, {"prefill": 0.030}, {"prefill": 0.015}),
    ]
    found = step_seconds(steps, np.array([0, 0, 0, 7, 90]))
    assert [(pair.name, pair.count) for pair in found] == [
        ("batch 1", 1), ("batch 3-4", 2), ("with prompts", 1), ("prompts alone", 1), ("all steps", 5),
    ]  # fmt: skip
    assert [pair.measured for pair in found] == pytest.approx([0.002, 0.005, 0.010, 0.030, 0.0104])
    assert [pair.error for pair in found] == pytest.approx([-0.5, 0.0, 0.0, -0.5, 0.036 / 0.052 - 1])


def test_phases_that_take_nothing_are_left_out():
    steps = [
        step(1, {"verify": 0.002, "host": 0.001}, {"verify": 0.002}),
        step(1, {"verify": 0.004}, {"verify": 0.002}),
    ]
    found = {pair.name: (pair.measured, pair.predicted) for pair in phase_seconds(steps)}
    assert found == {"verify": (0.003, 0.002), "host": (0.0005, 0.0)}
    assert phase_seconds([]) == []


def test_a_price_that_is_unknown_gives_no_error_instead_of_a_wrong_one():
    assert math.isnan(Pair("x", "s", 0.0, 1.0).error)
    assert math.isnan(step_seconds([step(1, {"verify": 1.0}, {"prefill": math.nan})], np.array([3]))[0].error)
