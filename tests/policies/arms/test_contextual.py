"""Contextual: one state a domain."""

import json
from dataclasses import replace

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.policies.arms.contextual import Contextual
from specsim.policies.build import build_arms
from specsim.policies.config import PolicyConfig


def contextual(*policy, **options):
    return Contextual(num_arms=2, policy=policy or ("ucb1", "c=0"), **options)


def test_each_domain_settles_on_its_own_drafter(context, outcome):
    policy, rng = contextual("thompson_beta"), np.random.default_rng(1)
    chances = {"chat": (0.2, 0.7), "code": (0.8, 0.3)}
    pulled = {"chat": [], "code": []}
    for step in range(600):
        domain = ("chat", "code")[step % 2]
        arm = policy.pull(replace(context, domains=(domain,)), rng)
        policy.update(arm, replace(outcome([1], [rng.random() < chances[domain][arm]]), domains=(domain,)))
        pulled[domain].append(arm)
    assert sum(pulled["chat"][100:]) > 180
    assert sum(pulled["code"][100:]) < 20


def test_a_batch_asks_its_most_frequent_domain_and_of_equals_the_first(context, outcome):
    policy = contextual()
    for domain, best in (("a", 0), ("b", 1)):
        for arm in (0, 1):
            policy.update(arm, replace(outcome([4], [4 if arm == best else 1]), domains=(domain,)))
    asked = {
        domains: policy.pull(replace(context, domains=domains), context.rng)
        for domains in (("a", "a", "b"), ("b", "a", "b"), ("b", "a"), ("a", "b"))
    }
    assert asked == {("a", "a", "b"): 0, ("b", "a", "b"): 1, ("b", "a"): 1, ("a", "b"): 0}


def test_a_mixed_batch_teaches_each_domain_by_its_own_requests(outcome):
    policy = contextual("ucb1", "reward=throughput")
    policy.update(0, replace(outcome([4, 4, 4], [4, 1, 0], seconds=0.3), domains=("a", "b", "a")))
    totals = policy.state_dict()
    assert totals["a"]["gain"][0] == 6.0  # 5 and 1 tokens
    assert totals["b"]["gain"][0] == 2.0
    assert totals["a"]["exposure"][0] == pytest.approx(0.2)
    assert totals["b"]["exposure"][0] == pytest.approx(0.1)


def test_one_arm_a_request_asks_each_requests_own_state(context, outcome):
    policy = contextual("ucb1", "c=0", scope="request")
    for domain, best in (("a", 0), ("b", 1)):
        for arm in (0, 1):
            policy.update(arm, replace(outcome([4], [4 if arm == best else 1]), domains=(domain,)))
    assert policy.pull_each(replace(context, domains=("a", "b", "b", "a")), context.rng) == [0, 1, 1, 0]
    assert policy.pull_each(context, context.rng) == [0] * context.batch  # of unknown domain: one new state


def test_each_request_is_asked_as_if_it_were_alone(context):
    policy, rng = contextual("thompson_beta", scope="request"), np.random.default_rng(0)
    arms = policy.pull_each(replace(context, batch=400, domains=("a",) * 400), rng)
    assert 100 < sum(arms) < 300  # a batch of Thompson samplers explores as a batch


def test_a_request_with_a_state_of_its_own_learns_from_itself_alone(context, outcome):
    policy = contextual("ucb1", "c=0", by="request", scope="request")
    here = replace(context, batch=2, domains=("a", "a"), requests=(7, 9))
    for arm, accepted in ((0, [4, 1]), (1, [1, 4])):
        assert policy.pull_each(here, context.rng) == [arm, arm]
        policy.update(arm, replace(outcome([4, 4], accepted), requests=(7, 9)))
    assert policy.pull_each(here, context.rng) == [0, 1]


def test_a_request_that_left_is_forgotten(context, outcome):
    policy = contextual("ucb1", by="request", scope="request")
    policy.pull_each(replace(context, batch=2, requests=(7, 9)), context.rng)
    policy.pull_each(replace(context, batch=2, requests=(9, 12)), context.rng)
    assert list(policy.state_dict()) == ["9", "12"]


def test_single_requests_cannot_agree_on_one_arm():
    with pytest.raises(InputError, match="by=request needs scope=request"):
        build_arms(PolicyConfig(name="contextual", options={"by": "request"}), 2)


def test_unknown_domains_share_one_state(context, outcome):
    policy = contextual("ucb1")
    assert policy.pull(context, context.rng) == 0
    policy.update(0, outcome([4], [4]))
    assert policy.pull(context, context.rng) == 1
    assert list(policy.state_dict()) == [""]


def test_the_wrapped_policys_options_are_checked_at_once():
    for text, fault in (
        ("ucb2", "unknown drafter policy 'ucb2'"),
        ("ucb1/d=1", "unknown option 'd'"),
        ("ucb1/c=-1", "option c"),
        ("contextual", "any policy but itself"),
    ):
        with pytest.raises(InputError, match=fault):
            build_arms(PolicyConfig(name="contextual", options={"policy": text}), 2)


def test_it_learns_from_every_drafter_when_the_wrapped_policy_does():
    assert contextual("hedge").full_information
    assert not contextual("ucb1").full_information


def test_the_states_of_all_domains_move_through_json(context, outcome):
    policy, moved = contextual("sliding_window_ucb", "window=7"), contextual("sliding_window_ucb", "window=7")
    for step in range(40):
        policy.update(step % 2, replace(outcome([4], [step % 5]), domains=(("a", "b", "c")[step % 3],)))
    moved.load_state_dict(json.loads(json.dumps(policy.state_dict())))
    assert moved.state_dict() == policy.state_dict()
    assert moved.pull(context, context.rng) == policy.pull(context, context.rng)
