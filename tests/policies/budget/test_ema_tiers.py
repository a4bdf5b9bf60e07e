"""Tiers of depths by mean accepted length."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.policies.build import build_controller

QUICK = "alpha=1,interval=1,warmup=0"
"""Decide after every step by that step alone."""


def play(controller, context, outcome, accepted, batch=2, num_drafts=None):
    """Depths of some steps in which every request accepts so many drafts, or all of fewer."""
    depths = []
    for most in accepted:
        depth = controller.choose(replace(context, batch=batch)).depth
        verify = np.full(batch, depth if num_drafts is None else min(depth, num_drafts))
        controller.observe(outcome(verify, np.minimum(verify, most), depth=depth))
        depths.append(depth)
    return depths


def tier(controller, row=0):
    return controller.budget_policy.memory.tiers["draft"][row]


def test_it_climbs_while_drafts_nearly_fill_the_depth_and_descends_when_they_fall_short(drafter, context, outcome):
    controller = build_controller(f"ema_tiers:{QUICK}", [drafter()])
    assert play(controller, context, outcome, [3, 5, 7, 3, 0, 0]) == [3, 5, 7, 7, 5, 1]


@pytest.mark.parametrize(
    ("mean", "depth", "expected"),
    [(2.5, 3, 3), (2.51, 3, 5), (0.25, 3, 1), (0.26, 3, 3), (4.25, 7, 5), (2.25, 7, 3), (4.26, 7, 7), (6.9, 1, 7)],
)
def test_thresholds_are_half_a_draft_below_and_a_quarter_further_down(mean, depth, expected, drafter, context):
    controller = build_controller("ema_tiers", [drafter()])
    controller.choose(context)
    found = tier(controller)
    found.mean, found.depth = mean, depth
    found.climb(0.0, -0.25)
    assert found.depth == expected


@pytest.mark.parametrize(("down", "expected"), [("", 0), (",down=-.25", 1)])
def test_a_list_that_holds_zero_is_left_without_hysteresis_unless_told_otherwise(
    down, expected, drafter, context, outcome
):
    controller = build_controller(f"ema_tiers:start=1,interval=1,warmup=0,alpha=.5{down}", [drafter()])
    order = controller.choose(replace(context, batch=8))
    controller.observe(outcome([1] * 8, [1] * 8, depth=order.depth))  # the mean is half a draft
    assert (tier(controller, row=1).mean, tier(controller, row=1).depth) == (0.5, expected)


def test_hysteresis_widens_the_gap_as_told(drafter, context, outcome):
    controller = build_controller(f"ema_tiers:{QUICK},up=1,down=-1", [drafter()])
    assert play(controller, context, outcome, [3, 0, 0]) == [3, 3, 3]  # 3 > 3.5 no; 0 <= -.5 no


def test_it_waits_for_the_warm_up_and_decides_every_few_steps(drafter, context, outcome):
    controller = build_controller("ema_tiers:alpha=1", [drafter()])
    depths = play(controller, context, outcome, [9] * 26)
    assert depths == [3] * 15 + [5] * 5 + [7] * 6


def test_the_mean_moves_by_its_weight(drafter, context, outcome):
    controller = build_controller("ema_tiers", [drafter()])
    play(controller, context, outcome, [0])
    assert tier(controller).mean == pytest.approx(0.8 * 2.0)  # begins one below the depth


def test_depth_zero_is_left_again_to_look(drafter, context, outcome):
    controller = build_controller(f"ema_tiers:{QUICK}", [drafter()])
    assert play(controller, context, outcome, [0, 0, 0, 0, 0, 1, 1, 3], batch=8) == [3, 0, 1, 0, 1, 0, 1, 3]


def test_a_list_of_depth_zero_alone_never_drafts(drafter, context, outcome):
    controller = build_controller(f"ema_tiers:{QUICK}", [drafter()])
    assert play(controller, context, outcome, [0] * 5, batch=64) == [0] * 5


def test_a_tier_that_began_at_depth_zero_meets_its_first_probe_half_way(drafter, context, outcome):
    controller = build_controller(f"ema_tiers:tiers=1:0:2:5,start=0,{QUICK}", [drafter()])
    assert play(controller, context, outcome, [0]) == [0]
    assert (tier(controller).depth, tier(controller).mean) == (2, 1.0)


def test_each_batch_range_and_each_drafter_has_a_state_of_its_own(drafter, context, outcome):
    controller = build_controller(f"ema_tiers:{QUICK}@round_robin", [drafter("a"), drafter("b")])
    assert play(controller, context, outcome, [3, 0, 5, 0, 7, 0], batch=7) == [3, 3, 5, 1, 7, 1]
    assert play(controller, context, outcome, [1], batch=8) == [3]


def test_case_34_short_drafts_accepted_in_full_leave_the_depth_unchanged(drafter, context, outcome):
    # A confidence stop leaves 1 drafted, 1 accepted, twenty times: each says "at least 1".
    for start in (3, 5, 7):
        controller = build_controller(f"ema_tiers:start={start}", [drafter()])
        assert play(controller, context, outcome, [1] * 20, num_drafts=1) == [start] * 20
        assert tier(controller).mean == start - 1


def test_a_draft_that_the_end_of_an_output_cut_off_says_at_least_as_well(drafter, context, outcome):
    controller = build_controller(f"ema_tiers:{QUICK}", [drafter()])
    order = controller.choose(context)
    controller.observe(outcome([3, 3], [1, 3], num_emitted=[1, 4], depth=order.depth))  # the first ended after one
    assert tier(controller).mean == pytest.approx((2 + 3) / 2)


def test_a_rejection_counts_however_short_the_draft_was(drafter, context, outcome):
    controller = build_controller(f"ema_tiers:start=7,{QUICK}", [drafter()])
    assert play(controller, context, outcome, [0, 0], num_drafts=1) == [7, 1]


@pytest.mark.parametrize(("accepted", "expected"), [(0, 1), (1, 3), (2, 3), (3, 7), (6, 7)])
def test_the_older_rule_takes_one_more_than_the_rounded_mean(accepted, expected, drafter, context, outcome):
    controller = build_controller(f"ema_tiers:rule=older,start=7,{QUICK}", [drafter()])
    assert play(controller, context, outcome, [accepted, 0]) == [7, expected]


def test_a_drafter_that_goes_less_deep_drafts_what_it_can(drafter, context):
    controller = build_controller("ema_tiers:start=7", [drafter(max_depth=4)])
    assert controller.choose(context).depth == 4
    assert controller.max_depth == 4


@pytest.mark.parametrize(
    ("tiers", "words"),
    [("2:1", "ascend from 1"), ("1:3:1", "ascending depths"), ("1", "ascending depths"), ("1:-1:2", "ascending depths"),
     ("1:1/1:2", "ascend from 1"), ("1:x", "valid integer")],
)  # fmt: skip
def test_tiers_in_disorder_are_refused(tiers, words, drafter):
    with pytest.raises(InputError, match=words):
        build_controller(f"ema_tiers:tiers={tiers}", [drafter()])


@pytest.mark.parametrize("option", ["up=nan", "up=inf", "down=nan", "down=-inf"])
def test_a_margin_that_is_no_number_is_refused(option, drafter):
    with pytest.raises(InputError, match="finite number"):
        build_controller(f"ema_tiers:{option}", [drafter()])


def test_a_state_of_other_tiers_is_refused(drafter, context):
    learned = build_controller("ema_tiers", [drafter()])
    learned.choose(context)
    for other in ("ema_tiers:tiers=1:2:4", "ema_tiers:rule=older"):
        with pytest.raises(InputError, match="not one of EmaTiers"):
            build_controller(other, [drafter()]).load_state_dict(learned.state_dict())
