"""Change-point restart: forget when the pulled arm is no longer what it was."""

import math

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.policies.arms.change_point import ArmHistory, ChangePoint, lags, threshold
from specsim.policies.arms.thompson_beta import ThompsonBeta
from specsim.policies.build import build_arms
from specsim.policies.config import PolicyConfig


def test_the_evidence_is_the_largest_likelihood_ratio_over_the_lags():
    history, rewards = ArmHistory(window=100), [1, 1, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0]
    for reward in rewards:
        history.add(reward, 1)
    n = len(rewards)
    by_lag = {k: 2 * k * (n - k) / n * (np.mean(rewards[-k:]) - np.mean(rewards[:-k])) ** 2 for k in lags(100) if k < n}
    assert list(by_lag) == [1, 2, 3, 4, 6, 9]
    assert history.evidence(scale=1.0) == pytest.approx(max(by_lag.values()))
    assert history.evidence(scale=2.0) == pytest.approx(max(by_lag.values()) / 4)


def test_means_before_and_after_are_ratios_of_totals():
    history = ArmHistory(window=10)
    for gain, exposure in ((9, 10), (1, 1), (0, 5)):
        history.add(gain, exposure)
    before = 11**2 / (10**2 + 1**2)  # a step of ten tests and one of one count little more than one step
    assert history.evidence(1.0) == pytest.approx(2 * 1 * before / (1 + before) * (0 / 5 - 10 / 11) ** 2)


def test_a_drafter_that_often_proposes_nothing_is_not_said_to_change():
    rng, restarts = np.random.default_rng(2), 0
    for _ in range(40):
        history = ArmHistory(window=500)
        for _ in range(400):
            tested = int(rng.random() < 0.1)
            history.add(tested * int(rng.random() < 0.5), tested)
            restarts += history.evidence(1.0) > threshold(history.pulls, 0.1)
    assert restarts == 0


def test_untested_steps_are_no_evidence():
    history = ArmHistory(window=10)
    for exposure in (0, 4, 0, 0):
        history.add(exposure / 2, exposure)
    assert history.evidence(1.0) == 0.0


def test_the_threshold_grows_with_the_pulls_and_with_caution():
    assert threshold(100, 0.1) == pytest.approx(math.log(3 * 1000 / 0.1))
    assert threshold(100, 0.01) == pytest.approx(threshold(100, 0.1) + math.log(10))


def test_lags_grow_by_halves_up_to_the_window():
    assert lags(1) == [1]
    assert lags(20) == [1, 2, 3, 4, 6, 9, 13, 19]
    assert all(b <= max(a + 1, a * 1.5) for a, b in zip(lags(500), lags(500)[1:], strict=False))


def test_arms_take_turns_and_the_base_policy_has_the_rest(context, outcome):
    policy = ChangePoint(num_arms=3, base="ucb1", explore=0.3)
    assert policy.period == 10
    pulled = []
    for _ in range(24):
        pulled.append(policy.pull(context, context.rng))
        policy.update(pulled[-1], outcome([4], [4 if pulled[-1] == 2 else 3]))
    assert pulled[:3] == pulled[10:13] == pulled[20:23] == [0, 1, 2]
    assert policy._policy.totals.pulls == [pulled.count(arm) for arm in range(3)]


def failed(policy, outcome):
    """Whether one more failure of the first arm restarts the policy."""
    policy.update(0, outcome([1], [0]))
    return policy.num_restarts > 0


def test_a_pulled_arm_that_changed_restarts_everything(context, outcome):
    policy = ChangePoint(num_arms=2, explore=0.0)
    for _ in range(100):
        policy.update(0, outcome([1], [1]))
        policy.update(1, outcome([1], [0]))
    delay = next(delay for delay in range(1, 50) if failed(policy, outcome))
    # 2 k 100 / (100 + k) > ln(3 (100 + k)^1.5 / .1), looked at for k = 1, 2, 3, 4, 6, 9: first at 6
    assert delay == 6
    assert policy._policy == ThompsonBeta(num_arms=2)
    assert policy._policy.accepted == [0, 0]
    assert [history.pulls for history in policy._histories] == [0, 0]
    assert policy._since == 0


def test_without_a_change_it_seldom_restarts(context, outcome):
    restarts = 0
    for seed in range(20):
        policy, rng = ChangePoint(num_arms=2), np.random.default_rng(seed)
        for _ in range(500):
            arm = policy.pull(context, rng)
            policy.update(arm, outcome([1], [rng.random() < (0.4, 0.6)[arm]]))
        restarts += policy.num_restarts
    assert restarts <= 4  # at most .1 an arm and run are expected


def test_a_change_that_lies_before_the_window_is_not_looked_for(outcome):
    policy = ChangePoint(num_arms=1, window=4, explore=0.0)
    for accepted in (*[1] * 50, *[0] * 50):
        policy.update(0, outcome([1], [accepted]))
    assert policy.num_restarts == 0  # four pulls can never be evidence enough
    assert len(policy._histories[0].sums) == 5


def test_thompson_beta_knows_no_throughput():
    options = {"reward": "throughput"}
    with pytest.raises(InputError, match="base thompson_beta counts accept tests"):
        build_arms(PolicyConfig(name="change_point", options=options), 2)
    for base in ("ucb1", "thompson_gaussian"):
        built = build_arms(PolicyConfig(name="change_point", options=options | {"base": base, "scale": 90.0}), 2)
        assert (built._policy.reward, built._policy.scale) == ("throughput", 90.0)


def test_restarts_after_a_move_through_a_state_come_at_the_same_step(context, outcome):
    policy, moved = ChangePoint(num_arms=2, window=50), ChangePoint(num_arms=2, window=50)
    for _ in range(120):
        policy.update(0, outcome([1], [1]))
    moved.load_state_dict(policy.state_dict())
    assert moved.state_dict() == policy.state_dict()
    delays = [next(delay for delay in range(1, 50) if failed(one, outcome)) for one in (policy, moved)]
    assert delays[0] == delays[1]
    assert moved.state_dict() == policy.state_dict()


def test_a_window_longer_than_any_run_is_refused():
    with pytest.raises(InputError, match="less than or equal to"):
        build_arms(PolicyConfig(name="change_point", options={"window": 10**25}), 2)


def test_a_step_that_tested_nothing_is_no_pull_before_or_after_a_change(outcome):
    policy = ChangePoint(num_arms=2)
    policy.update(0, outcome([4], [2]))
    before = policy.state_dict()
    for _ in range(5):
        policy.update(0, outcome([0], [0]))
    after = policy.state_dict()
    assert after["histories"] == before["histories"]
    assert (before["since"], after["since"]) == (1, 6)  # exploration takes its turns by steps
