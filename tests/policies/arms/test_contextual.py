"""Contextual: one state a domain."""

import json
from dataclasses import replace

import numpy as np
import pytest

from specsim.core import Counterfactual
from specsim.errors import InputError
from specsim.policies.arms.contextual import Contextual, by_domain
from specsim.policies.build import build_arms
from specsim.policies.config import PolicyConfig


def contextual(*policy):
    return Contextual(num_arms=2, policy=policy or ("ucb1", "c=0"))


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


def test_the_parts_of_an_outcome_make_up_the_whole(outcome):
    told = Counterfactual(np.arange(8).reshape(2, 4), np.arange(8, 16).reshape(2, 4))
    whole = replace(outcome([3, 2, 1, 3], [3, 1, 0, 2], seconds=0.4), domains=("b", "a", "b", "c"), counterfactual=told)
    parts = dict(by_domain(whole))
    assert list(parts) == ["b", "a", "c"]
    assert parts["b"].num_accepted.tolist() == [3, 0]
    assert parts["b"].domains == ("b", "b")
    assert parts["b"].counterfactual.num_accepted.tolist() == [[0, 2], [4, 6]]
    assert sum(part.seconds.total for part in parts.values()) == pytest.approx(whole.seconds.total)
    assert sum(int(part.num_tested.sum()) for part in parts.values()) == int(whole.num_tested.sum())


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
