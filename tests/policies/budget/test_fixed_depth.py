"""Fixed depth: the same drafts every step, all verified."""

import numpy as np
import pytest

from specsim.core import StepCost
from specsim.errors import InputError
from specsim.policies.build import build_controller


def test_it_drafts_the_depth_it_was_given(drafter, context):
    assert build_controller("fixed_depth:depth=7", [drafter()]).choose(context).depth == 7


def test_without_a_depth_it_drafts_as_deep_as_the_drafter_goes(drafter, context):
    assert build_controller("fixed_depth", [drafter(max_depth=9)]).choose(context).depth == 9


def test_it_verifies_every_draft_and_no_position_without_one(proposal):
    draft = proposal(np.zeros((3, 4)), num_drafts=[4, 0, 2])
    controller = build_controller("fixed_depth", [draft.drafter])
    assert controller.plan(draft, StepCost(np.ones(13))).num_verify.tolist() == [4, 0, 2]


def test_a_shallower_arm_drafts_what_it_can(drafter, context):
    drafters = [drafter("shallow", max_depth=3), drafter("deep", max_depth=15)]
    controller = build_controller("fixed_depth:depth=7@round_robin", drafters)
    assert [controller.choose(context).depth for _ in range(2)] == [3, 7]


def test_a_depth_no_arm_reaches_is_refused_naming_each_limit(drafter):
    drafters = [drafter("shallow", max_depth=3), drafter("deep", max_depth=15)]
    with pytest.raises(InputError, match=r"depth 16 .*\(shallow at most 3, deep at most 15\)"):
        build_controller("fixed_depth:depth=16@round_robin", drafters)
    with pytest.raises(InputError, match=r"depth 7 .*\(shallow at most 3\)"):
        build_controller("fixed_depth:depth=7@shallow", drafters)


@pytest.mark.parametrize("depth", ["0", "-1", "2.5", "many"])
def test_a_depth_that_is_no_positive_number_is_refused(depth, drafter):
    with pytest.raises(InputError, match="fixed_depth: option depth"):
        build_controller(f"fixed_depth:depth={depth}", [drafter()])
