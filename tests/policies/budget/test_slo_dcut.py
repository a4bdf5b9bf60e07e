"""D-cut within bounds on the step's seconds and on each request's seconds a token."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.core import StepCost
from specsim.errors import InputError
from specsim.policies.build import build_controller

FLAT = [[0.9, 0.9, 0.9, 0.9]] * 2
LINE = 1.0 + 0.1 * np.arange(9)
"""Two requests of four drafts: seconds at 0 to 8 drafts. Candidates are 0, 2, 4, 6, 8 drafts."""


def plan(spec, rows, proposal, seconds=LINE, num_decoded=None, decode_seconds=None):
    draft = proposal(rows, max_depth=4)
    if num_decoded is not None:
        draft = replace(
            draft, num_decoded=np.array(num_decoded), decode_seconds=np.array(decode_seconds, dtype=np.float64)
        )
    controller = build_controller(f"slo_dcut:{spec}", [draft.drafter])
    return controller.plan(draft, StepCost(np.array(seconds))).num_verify.tolist()


@pytest.mark.parametrize(
    ("bound", "expected"), [(99, [4, 4]), (1.8, [4, 4]), (1.79, [3, 3]), (1.2, [1, 1]), (1.1, [0, 0]), (0.5, [0, 0])]
)
def test_a_step_takes_no_longer_than_its_bound_or_as_short_as_it_can(bound, expected, proposal):
    assert plan(f"step_seconds={bound}", FLAT, proposal) == expected


def test_without_zero_the_least_candidate_is_what_remains(proposal):
    assert plan("step_seconds=.5,include_zero=false", FLAT, proposal) == [1, 1]


def test_far_bounds_leave_dcut_as_it_is(proposal):
    rng = np.random.default_rng(1)
    for _ in range(20):
        draft = proposal(rng.beta(2, 1.2, (8, 6)), max_depth=6)
        cost = StepCost(1.0 + np.cumsum(rng.exponential(0.05, 49)))
        plans = [
            build_controller(spec, [draft.drafter]).plan(draft, cost).num_verify.tolist()
            for spec in ("slo_dcut:step_seconds=1e9,tpot_seconds=1e9", "dcut:numerator=bonus,include_zero=true")
        ]
        assert plans[0] == plans[1]


def test_the_best_of_what_fits_wins_not_the_largest(proposal):
    # Two drafts survive surely, the rest hardly: 4 / 1.2 beats 4.02 / 1.4.
    assert plan("step_seconds=1.4", [[1.0, 0.01, 0.01, 0.01]] * 2, proposal) == [1, 1]


def test_a_request_behind_its_bound_holds_the_batch_to_short_steps(proposal):
    # Bound 1 second a token. The first has 10 tokens in 9.6 seconds, and drafts that are hardly accepted: it may
    # spend 1.4 seconds and what it gains. The second would like all four of its own.
    rows = [[0.1, 0.1, 0.1, 0.1], [1.0, 1.0, 1.0, 1.0]]
    behind = {"num_decoded": [10, 10], "decode_seconds": [9.7, 0.0]}
    ahead = {"num_decoded": [10, 10], "decode_seconds": [0.0, 0.0]}
    assert plan("tpot_seconds=1", rows, proposal, **ahead) == [0, 4]
    assert plan("tpot_seconds=1", rows, proposal, **behind) == [0, 2]  # 9.7 + 1.2 <= 11, and 1.4 would not do


def test_expected_tokens_count_towards_the_bound(proposal):
    # One token takes 1 second, five take 1.4: within .5 seconds a token only by accepting.
    rows = [[1.0, 1.0, 1.0, 1.0]]
    assert plan("tpot_seconds=.5", rows, proposal, seconds=LINE[:5]) == [4]
    assert plan("tpot_seconds=.5,ratios=.25", rows, proposal, seconds=[1, 1.1, 1.2, 1.3, 1.4]) == [1]  # out of reach
    rows = [[0.1] * 4, [1.0] * 4]
    assert plan("tpot_seconds=.9,drop_late=false", rows, proposal) == plan("step_seconds=9", rows, proposal)


def test_a_request_without_slack_gets_no_drafts_while_another_has_some(proposal):
    late = {"num_decoded": [10, 10], "decode_seconds": [30.0, 0.0]}
    assert plan("tpot_seconds=1", FLAT, proposal, **late) == [0, 4]
    assert plan("tpot_seconds=1,drop_late=false", FLAT, proposal, **late) == [4, 4]


def test_where_nobody_has_slack_everybody_drafts_for_throughput(proposal):
    late = {"num_decoded": [10, 10], "decode_seconds": [30.0, 30.0]}
    assert plan("tpot_seconds=1", FLAT, proposal, **late) == [4, 4]


def test_both_bounds_hold_together(proposal):
    late = {"num_decoded": [10, 10], "decode_seconds": [30.0, 0.0]}
    assert plan("tpot_seconds=1,step_seconds=1.25", FLAT, proposal, **late) == [0, 2]


def test_no_bound_at_all_is_refused(drafter):
    with pytest.raises(InputError, match="give step_seconds, tpot_seconds or both"):
        build_controller("slo_dcut", [drafter()])


@pytest.mark.parametrize("option", ["step_seconds=0", "tpot_seconds=-1", "tpot_seconds=inf", "ratios=all"])
def test_a_bound_that_is_none_and_a_list_without_end_are_refused(option, drafter):
    with pytest.raises(InputError):
        build_controller(
            f"slo_dcut:tpot_seconds=1,{option}" if "ratios" in option else f"slo_dcut:{option}", [drafter()]
        )
