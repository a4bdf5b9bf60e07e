"""Causal D-cut: stop at the first draft that does not pay, on the cost's envelope."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.core import SCORES, Draft, DrafterSpec, StepCost
from specsim.cost.envelope import lower_envelope
from specsim.errors import InputError
from specsim.policies.build import build_controller


def cost(seconds):
    seconds = np.asarray(seconds, dtype=np.float64)
    return StepCost(seconds, lower_envelope(seconds))


def verified(draft, price, options=""):
    controller = build_controller(f"dcut_causal{options}", [draft.drafter])
    return controller.plan(draft, price).num_verify


def test_case_24_a_staircase_is_climbed_where_a_stop_at_its_foot_would_halt(proposal):
    # 4 requests; 1.0 / 1.3 / 1.35 for up to 4 / 8 / 16 tokens; twelve positions that survive with one half.
    stairs = np.array([1.0, *[1.3] * 4, *[1.35] * 8])
    draft = proposal([[0.5, 1.0, 1.0]] * 4)
    assert verified(draft, cost(stairs)).tolist() == [3, 3, 3, 3]
    on_the_stairs = StepCost(stairs, stairs)  # the mutant: no envelope
    assert verified(draft, on_the_stairs).tolist() == [0, 0, 0, 0]


def test_it_stops_where_the_next_draft_lowers_the_utility(proposal):
    # Survivals .9 .72 .36 and .6 .3 .27; a second a draft on top of three.
    draft = proposal([[0.9, 0.8, 0.5], [0.6, 0.5, 0.9]])
    utility = (2 + np.cumsum([0, 0.9, 0.72, 0.6, 0.36, 0.3, 0.27])) / (3 + 0.5 * np.arange(7))
    assert np.argmax(utility) == 3
    assert verified(draft, cost(3 + 0.5 * np.arange(7))).tolist() == [2, 1]


def test_without_the_bonus_token_the_first_draft_always_pays(proposal):
    draft = proposal([[0.1, 0.1]])
    dear = cost([1.0, 100.0, 1000.0])
    assert verified(draft, dear).tolist() == [0]
    assert verified(draft, dear, ":numerator=paper").tolist() == [1]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_on_a_convex_cost_the_stop_is_the_best_of_all_budgets(data):
    batch, depth = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    confidence = rng.random((batch, depth))
    seconds = 1.0 + np.cumsum(np.sort(rng.random(batch * depth + 1)))
    survival = np.sort(np.cumprod(confidence, axis=1).ravel())[::-1]
    utility = (batch + np.concatenate([[0.0], np.cumsum(survival)])) / seconds
    spec = DrafterSpec("a", "block", "point_mass", "parallel", SCORES, depth)
    draft = Draft(spec, np.full(batch, depth), dict.fromkeys(SCORES, confidence))
    total = int(verified(draft, cost(seconds)).sum())
    assert utility[total] == pytest.approx(utility.max(), rel=1e-7)


def test_the_next_score_decides_and_no_later_one(proposal):
    # Two steps that agree up to the draft that stops it, and differ beyond: the same plan.
    price = cost(3 + 0.5 * np.arange(7))
    one = proposal([[0.9, 0.8, 0.3], [0.6, 0.5, 0.9]])
    other = proposal([[0.9, 0.8, 0.3], [0.6, 0.5, 0.0]])
    assert verified(one, price).tolist() == verified(other, price).tolist() == [2, 1]


def test_it_is_exact_for_sampled_autoregressive_drafts_and_plain_dcut_is_not(drafter):
    spec = drafter(law="sampled", structure="autoregressive")
    assert not build_controller("dcut_causal", [spec]).lossy
    with pytest.raises(InputError, match="is not exact with drafter"):
        build_controller("dcut:score=max_prob", [spec])
    with pytest.raises(InputError, match="is not exact with drafter"):
        build_controller("dcut_causal:score=drawn_prob", [spec])


def test_a_cost_without_its_envelope_is_refused(proposal):
    draft = proposal([[0.5]])
    with pytest.raises(ValueError, match="envelope"):
        verified(draft, StepCost(np.array([1.0, 2.0])))
