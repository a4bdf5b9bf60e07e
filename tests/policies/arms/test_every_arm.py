"""What holds for every drafter policy, whichever is added next."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.core import Counterfactual, Order, Outcome, StepContext, StepSeconds
from specsim.policies.build import ARMS, build_arms
from specsim.policies.config import PolicyConfig

TRIES_EACH_FIRST = (
    "round_robin",
    "epsilon_greedy",
    "ucb1",
    "kl_ucb",
    "thompson_gaussian",
    "sliding_window_ucb",
    "discounted_ucb",
    "discounted_thompson_gaussian",
    "change_point",
    "contextual",
)
"""Policies that look at every arm before they trust a mean; the others draw from a law in which none is out."""

ONE_STEP = st.tuples(
    st.integers(0, 4),  # verified
    st.integers(0, 4),  # accepted, if that many were verified
    st.booleans(),  # whether the request ended inside the block
    st.sampled_from([0.01, 0.02, 0.5]),  # seconds
    st.sampled_from(["chat", "code"]),
)


def build(name, num_arms=3):
    return build_arms(PolicyConfig(name=name), num_arms)


def context(rng, domain="chat"):
    return StepContext(0, 0.0, 1, 0, 100.0, rng, (domain,))


def outcome(arm, step, num_arms):
    num_verify, accepted, ended, seconds, domain = step
    accepted = min(accepted, num_verify)
    emitted = max(accepted, 1) if ended else accepted + 1
    every = np.full((num_arms, 1), accepted)
    return Outcome(
        Order(arm, 4),
        None,
        np.array([num_verify]),
        np.array([accepted]),
        np.array([emitted]),
        StepSeconds(verify=seconds),
        (domain,),
        Counterfactual(every, every + 1),
    )


def play(policy, steps, rng, num_arms=3):
    """Arms pulled while these steps happen."""
    pulled = []
    for step in steps:
        pulled.append(policy.pull(context(rng, step[-1]), rng))
        policy.update(pulled[-1], outcome(pulled[-1], step, num_arms))
    return pulled


@pytest.mark.parametrize("name", ARMS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(ONE_STEP, max_size=25), seed=st.integers(0, 5))
def test_any_course_of_steps_can_be_told_and_continued_from_json(name, steps, seed):
    policy, continued = build(name), build(name)
    pulled = play(policy, steps, np.random.default_rng(seed))
    assert set(pulled) <= set(policy.arms)
    continued.load_state_dict(json.loads(json.dumps(policy.state_dict(), allow_nan=False)))
    ahead = [(3, 1, False, 0.01, "chat")] * 10
    expected = play(policy, ahead, np.random.default_rng(seed))
    assert play(continued, ahead, np.random.default_rng(seed)) == expected
    assert continued.state_dict() == policy.state_dict()


@pytest.mark.parametrize("name", TRIES_EACH_FIRST)
@given(step=ONE_STEP, num_arms=st.integers(1, 6))
def test_case_37_each_arm_is_pulled_once_first(name, step, num_arms):
    policy = build(name, num_arms)
    assert play(policy, [step] * num_arms, np.random.default_rng(0), num_arms) == list(range(num_arms))


@pytest.mark.parametrize("name", ARMS)
def test_it_owns_no_randomness(name):
    rng = np.random.default_rng(3)
    steps = [(4, int(accepted), False, 0.01, "chat") for accepted in rng.integers(0, 5, 200)]
    np.random.seed(0)  # noqa: NPY002 the global state must not matter
    first = play(build(name), steps, np.random.default_rng(7))
    np.random.seed(1)  # noqa: NPY002
    assert play(build(name), steps, np.random.default_rng(7)) == first


@pytest.mark.parametrize("name", ARMS.keys() - {"round_robin"})
def test_pulling_alone_changes_nothing(name):
    policy = build(name)
    play(policy, [(4, 2, False, 0.01, "chat")] * 20, np.random.default_rng(0))
    before = json.dumps(policy.state_dict())
    for seed in range(5):
        policy.pull(context(np.random.default_rng(seed)), np.random.default_rng(seed))
    assert json.dumps(policy.state_dict()) == before


@pytest.mark.parametrize("name", ARMS.keys() - {"fixed_arm", "round_robin"})
def test_a_state_of_another_number_of_arms_is_refused(name):
    policy = build(name, 2)
    play(policy, [(4, 2, False, 0.01, "chat")] * 5, np.random.default_rng(0), 2)
    with pytest.raises(ValueError, match=r"arm|\[|need"):
        build(name, 3).load_state_dict(policy.state_dict())


@pytest.mark.parametrize("name", ARMS.keys() - {"fixed_arm", "round_robin"})
def test_the_better_drafter_is_found(name):
    policy, rng, pulled = build(name), np.random.default_rng(12), []
    for _ in range(1500):
        arm = policy.pull(context(rng), rng)
        accepted = rng.random((3, 4)) < np.array([0.3, 0.9, 0.6])[:, None]
        lengths = np.cumprod(accepted, axis=1).sum(axis=1)
        told = Counterfactual(lengths[:, None], np.minimum(lengths + 1, 4)[:, None])
        brought = outcome(arm, (4, int(lengths[arm]), False, 0.02, "chat"), 3)
        policy.update(arm, replace(brought, counterfactual=told))
        pulled.append(arm)
    assert pulled[500:].count(1) > 600
