"""Every twin pulls what the definitions pull, run by run and step by step, given the same random draws."""

import numpy as np
import pytest

from specsim.policies.build import ARMS
from specsim.study.regret.bernoulli import bernoulli
from specsim.study.regret.play import play_twin
from specsim.study.regret.trace_arms import trace_arms
from specsim.study.regret.twins.build import build_twin
from specsim.study.regret.twins.one_by_one import OneByOne

SPECS = {
    "fixed_arm": ["fixed_arm:arm=1"],
    "round_robin": ["round_robin"],
    "epsilon_greedy": ["epsilon_greedy", "epsilon_greedy:reward=throughput,epsilon=.3", "epsilon_greedy:epsilon=0"],
    "ucb1": ["ucb1", "ucb1:reward=throughput,c=.3", "ucb1:reward=throughput,scale=250"],
    "kl_ucb": ["kl_ucb", "kl_ucb:c=3", "kl_ucb:reward=throughput,scale=600"],
    "thompson_beta": ["thompson_beta", "thompson_beta:prior=.5"],
    "thompson_gaussian": ["thompson_gaussian", "thompson_gaussian:reward=accepted_fraction,sigma=.2"],
    "sliding_window_ucb": [
        "sliding_window_ucb:window=50",
        "sliding_window_ucb:window=2",
        "sliding_window_ucb:window=150",  # its ring grows twice, then wraps
        "sliding_window_ucb:window=2147483648",
        "sliding_window_ucb:reward=throughput,window=70,c=1",
    ],
    "discounted_ucb": ["discounted_ucb:discount=.95", "discounted_ucb:reward=throughput,discount=.99"],
    "discounted_thompson_beta": ["discounted_thompson_beta:discount=.97", "discounted_thompson_beta:prior=2"],
    "discounted_thompson_gaussian": [
        "discounted_thompson_gaussian:discount=.97",
        "discounted_thompson_gaussian:reward=accepted_fraction",
    ],
    "exp3s": ["exp3s", "exp3s:reward=throughput,gamma=.2", "exp3s:alpha=.01,gamma=.3", "exp3s:scale=.8"],
    "change_point": [
        "change_point:false_alarm=.5",
        "change_point:base=ucb1,window=60,explore=.2",
        "change_point:base=ucb1,reward=throughput,explore=.1",
        "change_point:base=ucb1,window=150",
        "change_point:window=2147483647",
        "change_point:base=thompson_gaussian,reward=throughput,explore=0",
    ],
    "hedge": ["hedge", "hedge:rate=1,share=0"],
    "contextual": ["contextual", "contextual:policy=thompson_beta", "contextual:policy=hedge/rate=.5"],
}
"""Texts that exercise every option of every drafter policy."""

EVERY_SPEC = [spec for specs in SPECS.values() for spec in specs]
SEEDS = [3, 1, 4, 15]


class Recorded:
    """A twin whose pulls are written down."""

    def __init__(self, twin):
        self.twin, self.pulls = twin, []

    def pull(self, domain, rng):
        self.pulls.append(self.twin.pull(domain, rng).copy())
        return self.pulls[-1]

    def update(self, arms, feedback):
        self.twin.update(arms, feedback)


def pulls(twin, environment):
    recorded = Recorded(twin)
    played = play_twin(recorded, environment, SEEDS)
    return np.array(recorded.pulls), played


def test_every_registered_policy_is_tested_here():
    assert SPECS.keys() == ARMS.keys()


@pytest.mark.parametrize("spec", EVERY_SPEC)
def test_a_twin_pulls_what_its_definitions_pull(spec, policy):
    environment = bernoulli("three_swaps", 600, switch_seconds=0.004)
    expected, _ = pulls(OneByOne(policy(spec), len(SEEDS)), environment)
    got, _ = pulls(build_twin(policy(spec), len(SEEDS)), environment)
    assert not isinstance(build_twin(policy(spec), 2), OneByOne)
    different = np.flatnonzero((got != expected).any(axis=1))
    assert different.size == 0, f"first at step {different[:1]}"


@pytest.mark.parametrize("spec", EVERY_SPEC)
def test_so_it_does_where_a_step_holds_several_tests_or_none_and_domains_change(spec, policy, small_trace):
    environment = trace_arms(small_trace, 400)
    expected, _ = pulls(OneByOne(policy(spec, 2), len(SEEDS)), environment)
    got, _ = pulls(build_twin(policy(spec, 2), len(SEEDS)), environment)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("spec", ["ucb1", "change_point", "exp3s"])
def test_so_it_does_over_thousands_of_steps(spec, policy):
    environment = bernoulli("one_swap", 4000)
    expected, _ = pulls(OneByOne(policy(spec), len(SEEDS)), environment)
    got, _ = pulls(build_twin(policy(spec), len(SEEDS)), environment)
    assert np.array_equal(got, expected)


def test_a_policy_without_a_twin_is_played_by_its_definition(policy):
    class Own(type(policy("ucb1"))):
        """A policy nobody registered."""

    own = Own(num_arms=3)
    twin = build_twin(own, len(SEEDS))
    assert isinstance(twin, OneByOne)
    environment = bernoulli("stationary", 300)
    assert np.array_equal(pulls(twin, environment)[0], pulls(build_twin(policy("ucb1"), 4), environment)[0])


def test_the_copies_of_a_policy_do_not_share_what_they_learn(policy):
    own = policy("ucb1")
    twin = OneByOne(own, 2)
    twin.policies[0].totals.add(0, 1.0, 1.0)
    assert twin.policies[1].totals.pulls == own.totals.pulls == [0, 0, 0]
