"""Ranking: the best positions are kept, prefixes always, ties by request then position."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from specsim.core import FIXED_POINT
from specsim.policies.ranking import accepted_estimate, best_first, keep_best
from specsim.policies.survival import survival_scores

CONFIDENCES = st.one_of(st.sampled_from([0.0, 1e-30, 0.5, 1.0]), st.floats(0.0, 1.0))


@st.composite
def steps(draw):
    """Confidences [B, D] and drafted lengths [B], full of ties, zeros, ones and short drafts."""
    batch, depth = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    confidence = draw(arrays.arrays(np.float64, (batch, depth), elements=CONFIDENCES))
    return confidence, draw(arrays.arrays(np.int64, batch, elements=st.integers(0, depth)))


def kept(confidence, num_drafts, budget):
    scores = survival_scores(confidence, num_drafts, np)
    return keep_best(scores, best_first(scores, np), np.array([budget]), np)


def kept_by_sorting(confidence, num_drafts, budget):
    """The same by sorting Python tuples: (request, position) of the `budget` best."""
    scores = survival_scores(confidence, num_drafts, np)
    ranked = sorted(
        (-scores[position, request], request, position)
        for request in range(len(num_drafts))
        for position in range(num_drafts[request])
    )
    return [(request, position) for _, request, position in ranked[:budget]], scores


@given(steps(), st.data())
def test_the_kept_set_is_a_prefix_of_each_request_and_as_large_as_the_budget(step, data):
    confidence, num_drafts = step
    budget = data.draw(st.integers(0, int(num_drafts.sum())))
    num_verify = kept(confidence, num_drafts, budget)
    chosen, _ = kept_by_sorting(confidence, num_drafts, budget)
    assert num_verify.sum() == budget
    assert np.all(num_verify >= 0)
    assert np.all(num_verify <= num_drafts)
    assert sorted(chosen) == [
        (request, position) for request in range(len(num_drafts)) for position in range(num_verify[request])
    ]


@given(steps(), st.data())
def test_no_excluded_position_scores_higher_than_an_included_one(step, data):
    confidence, num_drafts = step
    num_verify = kept(confidence, num_drafts, data.draw(st.integers(0, int(num_drafts.sum()))))
    scores = survival_scores(confidence, num_drafts, np)
    positions = np.arange(confidence.shape[1])[:, None]
    included = scores[positions < num_verify]
    excluded = scores[(positions >= num_verify) & (positions < num_drafts)]
    assert included.min(initial=np.inf) >= excluded.max(initial=-np.inf)


@given(steps())
def test_the_estimate_at_each_budget_is_the_sum_of_the_best_scores_in_fixed_point(step):
    confidence, num_drafts = step
    total = int(num_drafts.sum())
    scores = survival_scores(confidence, num_drafts, np)
    estimate = accepted_estimate(best_first(scores, np), np.arange(total + 1), np)
    _, _ = kept_by_sorting(confidence, num_drafts, total)
    best = sorted(scores[scores >= 0].tolist(), reverse=True)
    assert estimate.tolist() == [
        sum(round(score * FIXED_POINT) for score in best[:budget]) for budget in range(total + 1)
    ]


def test_case_27_certain_drafts_are_kept_from_the_front():
    assert kept(np.ones((1, 3)), np.array([3]), 2).tolist() == [2]


@pytest.mark.parametrize("budget", range(16))
def test_case_27_survivals_that_underflow_are_still_kept_from_the_front(budget):
    assert kept(np.full((1, 15), 1e-30), np.array([15]), budget).tolist() == [budget]


def test_equal_scores_are_kept_by_request_then_position():
    assert kept(np.ones((3, 2)), np.array([2, 2, 2]), 3).tolist() == [2, 1, 0]


def test_equal_scores_fill_the_room_that_better_ones_leave():
    confidence = np.array([[0.5, 1.0], [0.9, 0.1], [0.5, 1.0]])  # survivals .5 .5 / .9 .09 / .5 .5
    assert [kept(confidence, np.array([2, 2, 2]), budget).tolist() for budget in range(7)] == [
        [0, 0, 0],
        [0, 1, 0],
        [1, 1, 0],
        [2, 1, 0],
        [2, 1, 1],
        [2, 1, 2],
        [2, 2, 2],
    ]
