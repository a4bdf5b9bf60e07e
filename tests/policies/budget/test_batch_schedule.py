"""A depth by batch size, and the gate that shuts for good."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.policies.build import build_controller
from specsim.policies.config import ControllerConfig, PolicyConfig


def depths(controller, context, batches):
    return [controller.choose(replace(context, batch=batch)).depth for batch in batches]


def test_the_batch_size_chooses_the_row(drafter, context):
    controller = build_controller("batch_schedule:schedule=1:7/9:3/33:0", [drafter()])
    assert depths(controller, context, (1, 8, 9, 32, 33, 500)) == [7, 7, 3, 3, 0, 0]


def test_an_engines_own_syntax_is_an_option_value(drafter, context):
    own = {"tensorrt_llm": {"16": 3, "64": 1}}
    config = ControllerConfig(budget=PolicyConfig(name="batch_schedule", options={"schedule": own}))
    controller = build_controller(config, [drafter()])
    assert depths(controller, context, (16, 17, 64, 65)) == [3, 1, 1, 0]
    assert controller.label == "batch_schedule:schedule=1:3/17:1/65:0"


def test_it_verifies_all_it_drafted(proposal):
    draft = proposal(np.full((2, 3), 0.01), [3, 1])
    controller = build_controller("batch_schedule:schedule=1:3", [draft.drafter])
    assert controller.budget_policy.plan(draft, None, None).tolist() == [3, 1]


def test_an_engine_reserves_for_the_deepest_row(drafter):
    assert build_controller("batch_schedule:schedule=1:2/5:4", [drafter()]).max_depth == 4


def test_a_row_deeper_than_any_drafter_is_refused(drafter):
    with pytest.raises(InputError, match="depth 7 is deeper than any drafter goes"):
        build_controller("batch_schedule:schedule=1:7", [drafter(max_depth=4)])


def test_a_missing_or_wrong_schedule_is_refused_in_one_line(drafter):
    with pytest.raises(InputError, match=r"^batch_schedule: option schedule is required$"):
        build_controller("batch_schedule", [drafter()])
    with pytest.raises(InputError, match=r"^batch_schedule: option schedule = '2:3': schedule: the first row must"):
        build_controller("batch_schedule:schedule=2:3", [drafter()])


def test_the_gate_waits_for_its_window_then_shuts_for_good(drafter, context, outcome):
    controller = build_controller("batch_schedule:schedule=1:4,gate=.5,gate_window=3", [drafter()])
    seen = []
    for accepted in (0, 1, 0, 4, 4, 4):
        controller.observe(outcome([4, 4], [accepted, accepted]))
        seen.append(controller.choose(context).depth)
    assert seen == [4, 4, 0, 0, 0, 0]


def test_the_gate_averages_its_last_steps_alone(drafter, context, outcome):
    controller = build_controller("batch_schedule:schedule=1:4,gate=.5,gate_window=2", [drafter()])
    for accepted in (4, 4, 4, 2, 2):
        controller.observe(outcome([4], [accepted]))
    assert controller.choose(context).depth == 4  # exactly at the threshold
    controller.observe(outcome([4], [1]))
    assert controller.choose(context).depth == 0


def test_steps_without_a_draft_do_not_move_the_gate(drafter, context, outcome):
    controller = build_controller("batch_schedule:schedule=1:4,gate=.5,gate_window=1", [drafter()])
    controller.observe(outcome([0, 0], [0, 0], depth=0))
    controller.observe(outcome([0, 0], [0, 0], depth=4))  # asked for, but nothing was found
    assert controller.choose(context).depth == 4


def test_without_a_gate_nothing_ever_shuts(drafter, context, outcome):
    controller = build_controller("batch_schedule:schedule=1:4", [drafter()])
    for _ in range(200):
        controller.observe(outcome([4], [0]))
    assert controller.choose(context).depth == 4
