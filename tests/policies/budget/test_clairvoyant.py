"""Clairvoyant: the most a step could bring, for reports only."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.core import Draft, DrafterSpec, StepCost
from specsim.errors import InputError
from specsim.policies.build import build_controller

DRAFTER = DrafterSpec("draft", "synthetic", "point_mass", "parallel", (), 3)


def plan(num_drafts, num_acceptable, seconds):
    draft = Draft(DRAFTER, np.array(num_drafts), {}, np.array(num_acceptable))
    return build_controller("clairvoyant", [DRAFTER]).plan(draft, StepCost(np.asarray(seconds, dtype=float))).num_verify


def test_it_verifies_what_will_be_accepted_and_nothing_else():
    assert plan([3, 3, 2], [3, 0, 1], [1.0] * 10).tolist() == [3, 0, 1]


def test_it_stops_where_another_accepted_draft_does_not_pay_for_its_stair():
    # 2 requests, 4 acceptable: 2 in 1.0, then 3, 4, 5, 6 tokens in 1.1, 1.2, 3.1, 3.2
    assert plan([3, 3], [3, 1], [1.0, 1.1, 1.2, 3.1, 3.2, 3.3, 3.4]).tolist() == [2, 0]


def test_drafts_that_were_not_proposed_cannot_be_verified():
    assert plan([1, 0], [3, 3], [1.0] * 7).tolist() == [1, 0]


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3),
    prices=st.lists(st.floats(0.01, 1.0), min_size=10, max_size=10),
)
def test_no_plan_of_any_kind_brings_more_tokens_a_second(rows, prices):
    num_drafts, num_acceptable = zip(*rows, strict=True)
    seconds = np.cumsum(prices)[: 3 * len(rows) + 1]

    def tokens_per_second(num_verify):
        return (len(rows) + np.minimum(num_verify, num_acceptable).sum()) / seconds[np.sum(num_verify)]

    chosen = tokens_per_second(plan(num_drafts, num_acceptable, seconds))
    every = itertools.product(*(range(limit + 1) for limit in num_drafts))
    assert chosen >= max(tokens_per_second(np.array(candidate)) for candidate in every) * (1 - 1e-12)


def test_it_is_marked_and_refused_live():
    assert build_controller("clairvoyant", [DRAFTER]).clairvoyant
    assert not build_controller("fixed_depth", [DRAFTER]).clairvoyant
    with pytest.raises(InputError, match="runs in simulation only"):
        build_controller("clairvoyant", [DRAFTER], live=True)


def test_an_engine_that_does_not_tell_is_refused():
    draft = Draft(DRAFTER, np.array([3]), {})
    with pytest.raises(ValueError, match="num_acceptable"):
        build_controller("clairvoyant", [DRAFTER]).plan(draft, StepCost(np.ones(4)))
