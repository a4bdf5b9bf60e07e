"""D-cut: a worked example, its options, and the cost staircases on which other rules go wrong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.core import Draft, DrafterSpec, StepCost
from specsim.errors import InputError
from specsim.policies.budget.verify_ratio import as_fractions, drafts_at_ratio
from specsim.policies.build import build_controller

# Two requests, three drafts each.
#
#              position 1   2     3
# request 0   conf  .90    .80   .50      survival  .90   .72   .36
# request 1   conf  .60    .50   .90      survival  .60   .30   .27
#
# ranking          .90 (0,1)   .72 (0,2)   .60 (1,1)   .36 (0,3)   .30 (1,2)   .27 (1,3)
# budget K          1           2           3           4           5           6
# expected accepts  .90        1.62        2.22        2.58        2.88        3.15
# seconds (0: 1.0)  1.1        1.2         1.3         1.6         1.8         2.0
CONFIDENCE = [[0.9, 0.8, 0.5], [0.6, 0.5, 0.9]]
SECONDS = [1.0, 1.1, 1.2, 1.3, 1.6, 1.8, 2.0]

WORKED = [
    # K at ratios 1/4 1/2 3/4 1: 2 3 5 6.  1.62/1.2 = 1.350  2.22/1.3 = 1.708  2.88/1.8 = 1.600  3.15/2.0 = 1.575
    ("dcut", [2, 1]),
    # one token more a request:            3.62/1.2 = 3.017  4.22/1.3 = 3.246  4.88/1.8 = 2.711  5.15/2.0 = 2.575
    ("dcut:numerator=bonus", [2, 1]),
    # K of 8 tokens less 2 anchors: 0 2 4 6.  0/1.0 = 0      1.62/1.2 = 1.350  2.58/1.6 = 1.613  3.15/2.0 = 1.575
    ("dcut:count=code", [3, 1]),
    # and one token more a request:          2/1.0 = 2       3.62/1.2 = 3.017  4.58/1.6 = 2.863  5.15/2.0 = 2.575
    ("dcut:count=code,numerator=bonus", [2, 0]),
    # every K: .90/1.1 = .818  1.350  1.708  1.613  1.600  1.575
    ("dcut:ratios=all", [2, 1]),
    # K 2 and 5 only: 1.350 and 1.600
    ("dcut:ratios=.25/.75", [3, 2]),
    ("dcut:ratios=1", [3, 3]),
    ("dcut:ratios=1,include_zero=true", [3, 3]),
]


def plan(spec, draft, seconds):
    controller = build_controller(spec, [draft.drafter])
    return controller.plan(draft, StepCost(np.asarray(seconds, dtype=np.float64))).num_verify.tolist()


@pytest.mark.parametrize(("spec", "num_verify"), WORKED)
def test_the_worked_example_of_two_requests_and_three_drafts(spec, num_verify, proposal):
    assert plan(spec, proposal(CONFIDENCE), SECONDS) == num_verify


def test_defaults_are_the_papers(proposal):
    named = "dcut:ratios=.25/.5/.75/1,count=paper,numerator=paper,score=drawn_prob,include_zero=false"
    assert (
        build_controller(named, [proposal(CONFIDENCE).drafter]).config
        == build_controller("dcut", [proposal(CONFIDENCE).drafter]).config
    )


@pytest.mark.parametrize(
    ("requests", "depth", "ratio", "budget"),
    [(8, 3, 1.0, 24), (4, 3, 0.5, 4), (1, 3, 0.25, 0), (1, 3, 0.26, 1), (1, 3, 0.6, 2), (4, 1, 0.25, 0)],
)
def test_the_count_of_the_authors_code(requests, depth, ratio, budget):
    num_drafts = np.full(requests, depth)
    assert drafts_at_ratio(as_fractions((ratio,)), num_drafts, "code", np).tolist() == [budget]


@pytest.mark.parametrize(
    ("requests", "ratio", "budget"), [(2, 0.25, 2), (2, 0.5, 3), (2, 0.75, 5), (2, 1.0, 6), (1, 0.01, 1)]
)
def test_the_count_of_the_paper(requests, ratio, budget):
    assert drafts_at_ratio(as_fractions((ratio,)), np.full(requests, 3), "paper", np).tolist() == [budget]


def test_a_ratio_is_counted_without_rounding():
    # In floats .07 * 100 is 7.000000000000001, which rounds up to 8.
    assert drafts_at_ratio(as_fractions((0.07,)), np.full(10, 10), "paper", np).tolist() == [7]


def test_drafts_that_were_not_proposed_are_not_counted(proposal):
    # Five of six positions hold a draft: half of them is 3, not half of 6.
    draft = proposal([[0.9, 0.8, 0.0], [0.6, 0.5, 0.9]], num_drafts=[2, 3])
    assert sum(plan("dcut:ratios=.2", draft, [1.0] * 7)) == 1
    assert sum(plan("dcut:ratios=.5", draft, [1.0] * 7)) == 3
    assert plan("dcut:ratios=1", draft, [1.0] * 7) == [2, 3]


def test_no_draft_at_all_verifies_nothing(proposal):
    draft = proposal(np.zeros((2, 3)), num_drafts=[0, 0])
    for spec in ("dcut", "dcut:count=code", "dcut:ratios=all", "dcut:include_zero=true", "fixed_ratio"):
        assert plan(spec, draft, SECONDS) == [0, 0]


@pytest.mark.parametrize("spec", ["dcut:ratios=all", "dcut:ratios=all,numerator=bonus"])
def test_a_budget_beyond_what_was_drafted_is_no_candidate_however_cheap(spec, proposal):
    # A measured table may say that more costs less.
    draft = proposal([[0.9, 0.8, 0.0], [0.6, 0.0, 0.0]], num_drafts=[2, 1])
    assert plan(spec, draft, [1.0, 1.0, 1.0, 1.0, 0.1, 0.1, 0.1]) == [2, 1]


def test_of_equal_utilities_the_smaller_budget_wins(proposal):
    # Certain drafts at seconds in proportion: .25, .5, .75 and 1 all bring one token a second.
    assert sum(plan("dcut:ratios=1/.75/.5/.25", proposal(np.ones((2, 4))), [1.0, *range(1, 9)])) == 2


def staircase(batch, drafts, steps):
    """Seconds at each budget: the first step whose token limit holds the anchors and the drafts."""
    return [next(seconds for limit, seconds in steps if batch + budget <= limit) for budget in range(drafts + 1)]


@pytest.mark.parametrize("options", ["ratios=all", "include_zero=true"])
def test_case_23_no_draft_is_verified_when_the_next_stair_does_not_pay(options, proposal):
    seconds = staircase(64, 64, [(64, 10e-3), (128, 14e-3)])
    hopeless = proposal(np.full((64, 1), 0.1))  # 70.4 tokens in 14 ms = 5.03 a ms; none: 64 in 10 ms = 6.40
    mixed = proposal(np.where(np.arange(64)[:, None] < 16, 0.9, 0.05))  # 16 of .9: 78.4 in 14 ms = 5.60
    for draft in (hopeless, mixed):
        assert sum(plan(f"dcut:numerator=bonus,{options}", draft, seconds)) == 0


def test_case_23_is_why_the_bonus_numerator_exists(proposal):
    # Counting accepted drafts only, verifying nothing brings nothing, whatever it costs.
    seconds = staircase(64, 64, [(64, 10e-3), (128, 14e-3)])
    assert sum(plan("dcut:ratios=all", proposal(np.full((64, 1), 0.1)), seconds)) == 64


def test_case_24_the_best_budget_lies_beyond_a_stair_that_does_not_pay(proposal):
    # 4 + 12 * .5 = 10 tokens in 1.35 = 7.41; stopping at the first fall would stay at 4 in 1.0.
    seconds = staircase(4, 12, [(4, 1.0), (8, 1.3), (16, 1.35)])
    draft = proposal(np.tile([0.5, 1.0, 1.0], (4, 1)))
    assert sum(plan("dcut:numerator=bonus,ratios=all", draft, seconds)) == 12


def test_case_26_a_single_request_at_flat_cost_verifies_everything(proposal):
    draft = proposal(np.full((1, 15), 0.8))
    for spec in ("dcut", "dcut:ratios=all", "dcut:numerator=bonus", "dcut:count=code"):
        assert plan(spec, draft, [1.0] * 16) == [15]


def test_case_20_pruning_never_falls_below_autoregressive_where_fixed_depth_does(proposal):
    seconds = np.array([10e-3 + 4e-3 * ((budget + 63) // 64) for budget in range(257)])
    draft = proposal(np.full((64, 4), 0.5))
    tokens = 64 + np.cumsum([0.0, *([0.5] * 64), *([0.25] * 64), *([0.125] * 64), *([0.0625] * 64)])
    autoregressive, everything = tokens[0] / seconds[0], tokens[256] / seconds[256]
    assert autoregressive == pytest.approx(6400)
    assert everything == pytest.approx(4769, abs=1)
    budget = sum(plan("dcut:numerator=bonus,ratios=all", draft, seconds))
    assert tokens[budget] / seconds[budget] == max(tokens / seconds)
    assert tokens[budget] / seconds[budget] >= autoregressive


@given(
    confidence=st.lists(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3), min_size=1, max_size=4),
    prices=st.lists(st.floats(0.01, 1.0), min_size=13, max_size=13),
)
def test_no_budget_has_a_higher_utility_than_the_one_chosen(confidence, prices):
    drafter = DrafterSpec("draft", "synthetic", "point_mass", "parallel", ("drawn_prob",), 3)
    values = np.array(confidence)
    batch = len(values)
    draft = Draft(drafter, np.full(batch, 3), {"drawn_prob": values})
    seconds = np.cumsum(prices)[: 3 * batch + 1]
    chosen = sum(plan("dcut:numerator=bonus,ratios=all", draft, seconds))
    survivals = sorted(np.cumprod(values, axis=1).ravel(), reverse=True)
    utility = (batch + np.cumsum([0.0, *survivals])) / seconds
    assert utility[chosen] >= utility.max() - 1e-6 * utility.max()


@pytest.mark.parametrize("ratios", ["0", "1.5", "-1", "nan", "half", ".5/", ""])
def test_a_ratio_outside_its_range_is_refused_in_one_line(ratios, drafter):
    with pytest.raises(InputError) as error:
        build_controller(f"dcut:ratios={ratios}", [drafter()])
    assert "\n" not in str(error.value)
    assert "ratios" in str(error.value)
