"""Hedge: one step teaches every arm."""

import math
from dataclasses import replace

import numpy as np
import pytest

from specsim.core import Counterfactual
from specsim.errors import InputError
from specsim.policies.arms.hedge import Hedge
from specsim.policies.build import build_arms
from specsim.policies.config import PolicyConfig


def telling(outcome, accepted, tested):
    """An outcome that tells of every drafter, one request."""
    columns = (np.array(values, np.int64)[:, None] for values in (accepted, tested))
    return replace(outcome([1], [1]), counterfactual=Counterfactual(*columns))


def test_every_arm_is_weighed_whichever_was_pulled(outcome):
    policy = Hedge(num_arms=3, rate=0.5, share=0.0)
    policy.update(0, telling(outcome, [1, 0, 1], [1, 1, 1]))
    raised = np.exp(0.5 * np.array([1, 0, 1]))
    assert policy.weights == pytest.approx(raised / raised.sum())


def test_a_share_of_the_weight_is_spread_so_that_no_arm_dies(outcome):
    policy = Hedge(num_arms=2, rate=5.0, share=0.1)
    for _ in range(200):
        policy.update(0, telling(outcome, [1, 0], [1, 1]))
    assert policy.weights[1] == pytest.approx(0.05, abs=0.001)
    lasting = Hedge(num_arms=2, rate=5.0, share=0.0)
    for _ in range(200):
        lasting.update(0, telling(outcome, [1, 0], [1, 1]))
    assert lasting.weights[1] < 1e-300


def test_a_drafter_that_proposed_nothing_is_worth_the_average(outcome):
    policy = Hedge(num_arms=3, rate=1.0, share=0.0)
    policy.update(0, telling(outcome, [1, 0, 0], [1, 1, 0]))
    raised = [math.exp(1.0), math.exp(0.0), math.exp(0.5)]
    assert policy.weights == pytest.approx([weight / sum(raised) for weight in raised])


def test_a_step_that_tells_nothing_changes_nothing(outcome):
    policy = Hedge(num_arms=2)
    before = policy.state_dict()
    policy.update(0, telling(outcome, [0, 0], [0, 0]))
    assert policy.state_dict() == before


def test_an_outcome_of_the_pulled_arm_alone_is_refused(outcome):
    with pytest.raises(ValueError, match="tells of the pulled one alone"):
        Hedge(num_arms=2).update(0, outcome([1], [1]))


def test_arms_are_drawn_by_their_weights(context):
    policy = Hedge(num_arms=3)
    policy.load_state_dict(policy.state_dict() | {"weights": [0.6, 0.1, 0.3]})
    rng = np.random.default_rng(3)
    drawn = np.bincount([policy.pull(context, rng) for _ in range(6000)], minlength=3) / 6000
    assert drawn == pytest.approx([0.6, 0.1, 0.3], abs=0.02)


def test_a_rate_whose_exponential_overflows_is_refused():
    with pytest.raises(InputError, match="less than or equal to"):
        build_arms(PolicyConfig(name="hedge", options={"rate": 1e4}), 2)
