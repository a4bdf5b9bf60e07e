"""Cells from records made by hand: every comparison within a seed."""

from __future__ import annotations

import dataclasses
import math
import types

import numpy as np
import pytest

from specsim.metrics import Summary
from specsim.policies.config import parse
from specsim.study.assemble import assemble
from specsim.study.plan import Policy
from specsim.study.record import Record
from specsim.study.task import ITL_FRACTIONS

UNKNOWN = Summary(**{field.name: math.nan for field in dataclasses.fields(Summary)})


def record(policy, seed, throughput, **changes):
    summary = dataclasses.replace(
        UNKNOWN,
        steady_token_throughput=throughput,
        token_throughput=throughput,
        e2e_mean=100 / throughput,
        duration_seconds=2.0,
    )
    fields = {
        "key": f"{policy}-{seed}",
        "table": "t",
        "policy": policy,
        "batch": 8,
        "rate": 0.0,
        "seed": seed,
        "summary": summary,
        "num_decoded": round(2 * throughput),
        "counts": np.array([[0, 0, 0], [1, 1, 0], [2, 0, 4]]),
        "drafted_request_steps": 8,
        "arm_share": {"a": 0.75, "b": 0.0, "none": 0.25},
        "itl_seconds": [0.01 * (seed + 1)] * len(ITL_FRACTIONS),
        "series": {},
        "lossy_reason": None,
        "clairvoyant": False,
        "notes": (),
    }
    return Record(**{**fields, **changes})


def policy(text, fixed=False, bound=False, num_arms=1):
    return Policy(parse(text), text, fixed, bound, num_arms)


def cells(policies, throughputs, rate=0.0, **changes):
    """Cells of one place; throughputs [policies][seeds]."""
    seeds = list(range(len(throughputs[0])))
    batch = 0 if rate else 8
    plan = types.SimpleNamespace(
        policies=policies,
        tables=[types.SimpleNamespace(name="t")],
        study=types.SimpleNamespace(batches=[8] if batch else [], rates=[rate] if rate else [], seeds=seeds),
    )
    records = [
        record(p.label, seed, throughputs[index][seed], batch=batch, rate=rate, clairvoyant=p.bound, **changes)
        for index, p in enumerate(policies)
        for seed in seeds
    ]
    return assemble(plan, records[::-1])


AR = policy("autoregressive", fixed=True, num_arms=0)


def test_a_speedup_is_the_mean_of_the_ratios_within_each_seed():
    _, own = cells([AR, policy("dcut")], [[100.0, 200.0], [150.0, 200.0]])
    assert own.values["speedup"] == pytest.approx((1.5 + 1.0) / 2)  # the ratio of the means is 1.17
    assert own.speedup_interval == (1.0, 1.5)


def test_pairing_removes_what_the_seeds_have_in_common():
    noise = np.random.default_rng(0).uniform(50, 500, 6)
    _, own = cells([AR, policy("dcut")], [list(noise), list(1.25 * noise)])
    assert own.speedup_interval == pytest.approx((1.25, 1.25))


@pytest.mark.parametrize(
    ("ratios", "slower", "undecided"),
    [
        ([0.90, 0.95], True, False),
        ([0.90, 1.10], False, True),
        ([1.05, 1.10], False, False),
        ([1.0, 1.0], False, True),
    ],
)
def test_verdicts_need_the_whole_interval(ratios, slower, undecided):
    _, own = cells([AR, policy("dcut")], [[100.0, 100.0], [100 * ratio for ratio in ratios]])
    assert (own.slower_than_autoregressive, own.not_distinguishable) == (slower, undecided)


def test_the_best_fixed_policy_is_the_one_with_the_highest_mean():
    policies = [
        AR,
        policy("fixed_depth:depth=3", fixed=True),
        policy("fixed_depth:depth=7", fixed=True),
        policy("dcut"),
    ]
    found = cells(policies, [[100.0, 100.0], [140.0, 160.0], [170.0, 120.0], [180.0, 168.0]])
    assert {cell.best_fixed for cell in found} == {"fixed_depth:depth=3"}
    mean, low, high = found[-1].difference_to_best_fixed
    assert mean == pytest.approx((180 / 140 + 168 / 160) / 2 - 1)
    assert (low, high) == pytest.approx((168 / 160 - 1, 180 / 140 - 1))
    assert found[-1].values["regret_to_best_fixed"] == pytest.approx(-mean)


def test_autoregressive_may_be_the_best_fixed_policy_but_not_the_only_one():
    policies = [AR, policy("fixed_depth", fixed=True), policy("dcut")]
    assert cells(policies, [[100.0], [80.0], [90.0]])[-1].best_fixed == "autoregressive"
    alone = cells([AR, policy("dcut")], [[100.0], [90.0]])[-1]
    assert alone.best_fixed is None
    assert alone.difference_to_best_fixed is None
    assert "regret_to_best_fixed" not in alone.values


def test_a_lossy_policy_is_no_reference():
    policies = [AR, policy("fixed_depth", fixed=True), policy("fixed_ratio", fixed=True)]
    found = cells(policies, [[100.0], [120.0], [110.0]], lossy_reason="because")
    assert {cell.best_fixed for cell in found} == {None}


def test_the_bound_is_the_best_of_its_candidates():
    policies = [AR, policy("dcut"), policy("clairvoyant@a", bound=True), policy("clairvoyant@b", bound=True)]
    found = cells(policies, [[100.0, 100.0], [150.0, 180.0], [190.0, 190.0], [200.0, 240.0]])
    assert [cell.policy for cell in found] == ["autoregressive", "dcut", "clairvoyant"]
    assert found[1].share_of_clairvoyant == pytest.approx((150 / 200 + 180 / 240) / 2)
    assert found[1].values["regret_to_clairvoyant"] == pytest.approx(0.25)
    assert found[2].notes == ("the bound is the best of several clairvoyant runs, here clairvoyant@b",)


def test_a_bandit_is_measured_against_the_best_single_drafter_under_its_budget():
    policies = [
        AR,
        policy("dcut@a"),
        policy("dcut@b"),
        policy("dcut@ucb1", num_arms=2),
        policy("dcut:count=code@ucb1", num_arms=2),
    ]
    found = cells(policies, [[100.0], [200.0], [120.0], [190.0], [190.0]])
    assert found[3].values["regret_to_best_arm"] == pytest.approx(0.05)
    assert found[2].values["regret_to_best_arm"] == pytest.approx(0.4)
    assert "regret_to_best_arm" not in found[4].values  # nobody took that budget to a single drafter


def test_an_open_loop_is_compared_by_mean_latency():
    _, own = cells([AR, policy("dcut")], [[100.0, 100.0], [150.0, 250.0]], rate=2.0)
    assert own.values["speedup"] == pytest.approx(2.0)  # e2e_mean is made as 100 / throughput here
    assert own.rate == 2.0
    assert own.batch == 0


def test_positions_are_counted_over_all_seeds():
    _, own = cells([AR, policy("dcut")], [[100.0, 100.0], [150.0, 150.0]])
    assert own.acceptance_by_position == pytest.approx([5 / 8, 4 / 6])
    assert own.verified_by_position == pytest.approx([1.0, 6 / 8])


def test_latency_quantiles_and_arm_shares_are_means_over_the_seeds():
    _, own = cells([AR, policy("dcut")], [[100.0, 100.0], [150.0, 150.0]])
    assert own.latency["itl_seconds"] == pytest.approx([0.015] * len(ITL_FRACTIONS))
    assert own.latency["fraction"] == list(ITL_FRACTIONS)
    assert own.arm_share == {"a": 0.75, "b": 0.0, "none": 0.25}


def test_a_mean_is_over_the_seeds_that_know():
    known = dataclasses.replace(UNKNOWN, steady_token_throughput=100.0, goodput=4.0)
    unknown = dataclasses.replace(UNKNOWN, steady_token_throughput=100.0)
    plan = types.SimpleNamespace(
        policies=[AR],
        tables=[types.SimpleNamespace(name="t")],
        study=types.SimpleNamespace(batches=[8], rates=[], seeds=[0, 1]),
    )
    records = [record("autoregressive", seed, 100.0, summary=s) for seed, s in enumerate((known, unknown))]
    (own,) = assemble(plan, records)
    assert own.values["goodput"] == 4.0
    assert math.isnan(own.values["ttft_p50"])


def test_notes_are_said_once_in_the_order_first_said():
    _, own = cells([AR, policy("dcut")], [[100.0, 100.0], [150.0, 150.0]], notes=("b", "a"))
    assert own.notes == ("b", "a")


def test_the_regret_over_time_is_against_the_best_fixed_policy_on_the_same_seed():
    series = {"started_at": [0.0, 1.0], "cumulative_tokens": [0.0, 90.0]}
    policies = [AR, policy("fixed_depth", fixed=True), policy("dcut")]
    found = cells(policies, [[80.0, 80.0], [100.0, 300.0], [90.0, 90.0]], series=series)
    assert found[-1].series["regret_tokens"] == [0.0, 10.0]
    open_loop = cells(policies, [[80.0], [100.0], [90.0]], rate=1.0, series=series)
    assert "regret_tokens" not in open_loop[-1].series
