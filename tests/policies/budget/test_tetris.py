"""TETRIS: a fixed capacity for the drafts most likely to survive."""

import numpy as np
import pytest

from specsim.core import StepCost
from specsim.errors import InputError
from specsim.policies.build import build_controller

CONFIDENCE = [[0.9, 0.8, 0.5], [0.6, 0.5, 0.9]]  # survivals .9 .72 .36 / .6 .3 .27


@pytest.mark.parametrize(
    ("options", "num_verify"),
    [
        (":capacity=0", [0, 0]),
        (":capacity=1", [1, 0]),
        (":capacity=3", [2, 1]),
        (":capacity=5", [3, 2]),
        (":capacity=99", [3, 3]),
        (":per_request=2", [3, 1]),
        ("", [3, 3]),
    ],
)
def test_the_capacity_goes_to_the_best_whatever_it_costs(options, num_verify, proposal):
    draft = proposal(CONFIDENCE)
    controller = build_controller(f"tetris{options}", [draft.drafter])
    for seconds in (np.ones(7), np.arange(1.0, 8.0) ** 4):
        assert controller.plan(draft, StepCost(seconds)).num_verify.tolist() == num_verify


@pytest.mark.parametrize("option", ["capacity", "per_request"])
def test_a_capacity_that_no_array_can_hold_is_refused(option, proposal):
    with pytest.raises(InputError, match="less than or equal to"):
        build_controller(f"tetris:{option}={10**25}", [proposal(CONFIDENCE).drafter])
