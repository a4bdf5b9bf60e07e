"""Stopping by the chance of a rejection."""

import numpy as np
import pytest

from specsim.core import StepCost
from specsim.policies.build import build_controller


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(0.05, [1, 1]), (0.2, [3, 1]), (0.25, [3, 1]), (0.28, [4, 1]), (0.5, [4, 3]), (0.6, [4, 3]), (0.9, [4, 4])],
)
def test_it_stops_behind_the_draft_that_carries_the_chance_over_the_threshold(threshold, expected, proposal):
    # Chances of a rejection so far: .1, .19, .271, .344 and .5, .5, .75, .75.
    draft = proposal([[0.9, 0.9, 0.9, 0.9], [0.5, 1.0, 0.5, 1.0]])
    controller = build_controller(f"specdec_pp:threshold={threshold}", [draft.drafter])
    assert controller.draft_lengths(draft, lambda depth: StepCost(np.ones(9))).tolist() == expected
