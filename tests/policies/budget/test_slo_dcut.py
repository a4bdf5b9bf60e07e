"""D-cut within bounds on the step's seconds and on each request's seconds a token."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.core import StepCost
from specsim.errors import InputError
from specsim.policies.build import build_controller

FLAT = [[0.9, 0.9, 0.9, 0.9]] * 2
LINE = 1.0 + 0.1 * np.arange(9)
"""Two requests of four drafts: seconds at 0 to 8 drafts."""


def plan(spec, rows, proposal, seconds=LINE, num_decoded=None, decode_seconds=None):
    draft = proposal(rows, max_depth=4)
    if num_decoded is not None:
        draft = replace(
            draft, num_decoded=np.array(num_decoded), decode_seconds=np.array(decode_seconds, dtype=np.float64)
        )
    ratios = "" if "ratios" in spec else ",ratios=.25/.5/.75/1"  # 0, 2, 4, 6, 8 drafts
    controller = build_controller(f"slo_dcut:{spec}{ratios}", [draft.drafter])
    return controller.plan(draft, StepCost(np.array(seconds))).num_verify.tolist()


@pytest.mark.parametrize(
    ("bound", "expected"),
    [(99, [4, 4]), (1.8, [4, 4]), (1.79, [4, 3]), (1.2, [1, 1]), (1.1, [1, 0]), (1.09, [0, 0]), (0.5, [0, 0])],
)
def test_a_step_takes_no_longer_than_its_bound_or_as_short_as_it_can(bound, expected, proposal):
    assert plan(f"step_seconds={bound}", FLAT, proposal) == expected


def test_a_bound_holds_however_slow_the_engine_is(proposal):
    assert plan("step_seconds=12", FLAT, proposal, seconds=10 * LINE) == [1, 1]  # tokens a second below one


def test_without_zero_the_least_candidate_is_what_remains(proposal):
    assert plan("step_seconds=.5,include_zero=false", FLAT, proposal) == [1, 1]


def test_far_bounds_leave_dcut_as_it_is(proposal):
    rng = np.random.default_rng(1)
    for _ in range(20):
        draft = proposal(rng.beta(2, 1.2, (8, 6)), max_depth=6)
        cost = StepCost(1.0 + np.cumsum(rng.exponential(0.05, 49)))
        plans = [
            build_controller(spec, [draft.drafter]).plan(draft, cost).num_verify.tolist()
            for spec in (
                "slo_dcut:step_seconds=1e9,tpot_seconds=1e9,ratios=.25/.5/.75/1",
                "dcut:numerator=bonus,include_zero=true",
            )
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
    # The first may spend 1.35 seconds on this step, and one more for each token it expects.
    for first, expected in ((0.9, [4, 4]), (0.1, [0, 2])):
        rows = [[first] * 4, [1.0] * 4]
        behind = {"num_decoded": [10, 10], "decode_seconds": [9.65, 0.0]}
        assert plan("tpot_seconds=1", rows, proposal, **behind) == expected


def test_a_request_that_meets_the_bound_at_no_candidate_binds_nobody(proposal):
    # Even four tokens more do not make up for three seconds.
    behind = {"num_decoded": [10, 10], "decode_seconds": [20.0, 0.0]}
    assert plan("tpot_seconds=1", FLAT, proposal, **behind) == [4, 4]


def test_a_request_far_behind_its_bound_gets_no_drafts_while_another_is_not(proposal):
    far = {"num_decoded": [10, 10], "decode_seconds": [42.1, 0.0]}  # 32 tokens behind and a bit
    near = {"num_decoded": [10, 10], "decode_seconds": [41.9, 0.0]}
    assert plan("tpot_seconds=1", FLAT, proposal, **far) == [0, 4]
    assert plan("tpot_seconds=1", FLAT, proposal, **near) == [4, 4]
    assert plan("tpot_seconds=1,give_up=1e9", FLAT, proposal, **far) == [4, 4]


def test_where_all_are_far_behind_everybody_drafts_for_throughput(proposal):
    far = {"num_decoded": [10, 10], "decode_seconds": [50.0, 60.0]}
    assert plan("tpot_seconds=1", FLAT, proposal, **far) == [4, 4]


def test_both_bounds_hold_together(proposal):
    late = {"num_decoded": [10, 10], "decode_seconds": [50.0, 0.0]}
    assert plan("tpot_seconds=1,step_seconds=1.25", FLAT, proposal, **late) == [0, 2]


def test_a_drafter_is_not_run_where_no_draft_of_its_fits(drafter, context):
    def price(drafter, depth):
        return StepCost(0.01 + 0.001 * depth + 1e-4 * np.arange(4 * depth + 1))

    context = replace(context, price=price)
    for bound, depth in ((0.02, 7), (0.0141, 4), (0.0111, 1), (0.011, 0)):
        controller = build_controller(f"slo_dcut:step_seconds={bound}", [drafter(max_depth=7)])
        assert controller.choose(context).depth == depth
    assert build_controller("slo_dcut:tpot_seconds=.001", [drafter(max_depth=7)]).choose(context).depth == 7


def test_no_bound_at_all_is_refused(drafter):
    with pytest.raises(InputError, match="give step_seconds, tpot_seconds or both"):
        build_controller("slo_dcut", [drafter()])


@pytest.mark.parametrize("option", ["step_seconds=0", "tpot_seconds=-1", "tpot_seconds=inf", "ratios=all"])
def test_a_bound_that_is_none_and_a_list_without_end_are_refused(option, drafter):
    with pytest.raises(InputError):
        build_controller(
            f"slo_dcut:tpot_seconds=1,{option}" if "ratios" in option else f"slo_dcut:{option}", [drafter()]
        )
