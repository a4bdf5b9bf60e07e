"""Every policy in every environment, summed up."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.policies.config import PolicyConfig
from specsim.study.regret.bernoulli import bernoulli
from specsim.study.regret.play import play
from specsim.study.regret.study import DEFAULT_POLICIES, describe, study_regret
from specsim.study.regret.trace_arms import trace_arms


def configs(*texts):
    return [PolicyConfig.model_validate(text) for text in texts]


def test_policies_and_environments_come_in_the_order_asked_for(result):
    assert [(found.environment, found.policy) for found in result.regrets] == [
        ("stationary", "ucb1"),
        ("stationary", "hedge:rate=.2"),
        ("one_swap", "ucb1"),
        ("one_swap", "hedge:rate=.2"),
    ]
    assert result.policies == ("ucb1", "hedge:rate=.2")
    assert [found.policy for found in result.of("one_swap")] == ["ucb1", "hedge:rate=.2"]


def test_a_summary_is_of_what_was_played(result, policy):
    played = play(policy("ucb1"), bernoulli("one_swap", 400), result.seeds)
    found = result.of("one_swap")[0]
    regret = played.regret[-1]
    assert found.by_seed["regret"] == regret.tolist()
    assert found.regret == pytest.approx(regret.mean())
    assert found.regret_sd == pytest.approx(regret.std(ddof=1))
    assert found.regret_band == pytest.approx(np.quantile(regret, [0.05, 0.95]))
    assert found.regret_interval[0] < found.regret < found.regret_interval[1]
    # Oracle: .7 a step. Best fixed: any of .7/.3 and .3/.7 and .5/.5, all .5 a step.
    assert found.share_of_oracle == pytest.approx(played.collected.mean() / (0.7 * 400))
    assert found.share_of_best_fixed == pytest.approx(played.collected.mean() / (0.5 * 400))
    assert found.static_regret == pytest.approx(0.5 * 400 - played.collected.mean())
    assert found.by_seed["static_regret"] == pytest.approx(0.5 * 400 - played.collected)
    assert found.arm_share == pytest.approx(
        dict(zip(("arm 0", "arm 1", "arm 2"), played.pulls.mean(axis=0) / 400, strict=True))
    )
    assert found.switches == played.switches.mean()
    assert found.seconds_regret == pytest.approx(played.seconds_regret[-1].mean())


def test_a_curve_holds_the_middle_ninety_percent(result):
    curve = result.regrets[0].curve
    assert curve["step"][-1] == 400
    for prefix in ("", "seconds_"):
        low, mean, high = (np.array(curve[f"{prefix}{name}"]) for name in ("low", "mean", "high"))
        assert (low <= mean + 1e-9).all()
        assert (mean <= high + 1e-9).all()
    assert curve["mean"][-1] == pytest.approx(result.regrets[0].regret)


def test_an_environment_is_described(result):
    swap = result.environments[1]
    assert (swap.num_steps, swap.changes, swap.arms) == (400, (200,), ("arm 0", "arm 1", "arm 2"))
    assert swap.fixed_regret == pytest.approx((0.7 - 0.5) * 400)
    assert result.environments[0].fixed_regret == 0.0
    assert result.environments[0].best_fixed == "arm 1"
    assert len(result.environments[0].lines["Lai-Robbins"]) == len(result.regrets[0].curve["step"])


def test_arms_that_drift_at_every_step_have_no_steps_of_change():
    assert describe(bernoulli("slow_drift", 400)).changes == ()


def test_only_bernoulli_arms_have_bernoulli_lines(small_trace):
    one_domain = replace(small_trace, domains=("chat",))
    assert set(describe(trace_arms(one_domain, 100)).lines) == {"sqrt(K T ln T)"}


def test_several_processes_find_the_same(result):
    environments = [bernoulli("stationary", 400), bernoulli("one_swap", 400)]
    told = []
    again = study_regret(
        environments,
        configs("ucb1", "hedge:rate=.2"),
        result.seeds,
        jobs=2,
        progress=lambda *done: told.append(done),
        command="specsim regret",
    )
    assert again.regrets == result.regrets
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_one_seed_has_no_spread():
    found = study_regret([bernoulli("stationary", 100)], configs("ucb1"), [7]).regrets[0]
    assert found.regret_sd == 0.0
    assert found.regret_band == (found.regret, found.regret)


def test_a_policy_that_is_told_more_is_named(result):
    assert result.notes == [
        "hedge:rate=.2: learns from every arm at every step; the others only from the arm they pulled"
    ]


def test_an_unknown_policy_is_refused_before_anything_is_played():
    with pytest.raises(InputError, match="unknown drafter policy 'ucb3'"):
        study_regret([bernoulli("stationary", 10**9 // 10**6)], configs("ucb1", "ucb3"), [0])


def test_every_default_policy_is_known():
    assert study_regret([bernoulli("stationary", 60)], configs(*DEFAULT_POLICIES), [0, 1]).policies == DEFAULT_POLICIES
