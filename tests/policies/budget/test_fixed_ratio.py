"""Fixed ratio: the same share every step, the best first."""

import numpy as np
import pytest

from specsim.core import StepCost
from specsim.errors import InputError
from specsim.policies.build import build_controller

CONFIDENCE = [[0.9, 0.8, 0.5], [0.6, 0.5, 0.9]]  # survivals .9 .72 .36 / .6 .3 .27


@pytest.mark.parametrize(
    ("options", "num_verify"),
    [
        ("ratio=.25", [2, 0]),
        ("ratio=.5", [2, 1]),
        ("ratio=.75", [3, 2]),
        ("ratio=1", [3, 3]),
        ("ratio=.75,count=code", [3, 1]),  # ceil(.75 * 8) - 2 = 4
        ("ratio=.25,count=code", [0, 0]),
    ],
)
def test_it_keeps_its_share_of_the_best_whatever_the_step_costs(options, num_verify, proposal):
    draft = proposal(CONFIDENCE)
    controller = build_controller(f"fixed_ratio:{options}", [draft.drafter])
    for seconds in (np.ones(7), np.arange(1.0, 8.0) ** 4):
        assert controller.plan(draft, StepCost(seconds)).num_verify.tolist() == num_verify


def test_a_ratio_outside_its_range_is_refused(drafter):
    with pytest.raises(
        InputError, match=r"fixed_ratio: option ratio = '1\.1': Input should be less than or equal to 1"
    ):
        build_controller("fixed_ratio:ratio=1.1", [drafter()])
