"""Sums of each arm: every step counts, until a test shows that it said nothing."""

import json

import numpy as np
import pytest

from specsim.policies.arms.arm_totals import ArmTotals


def test_pulls_that_tested_nothing_count_until_their_arm_meets_a_test():
    totals = ArmTotals(2)
    for gain, exposure in ((1.0, 2.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)):
        totals.add(0, gain, exposure)
    totals.add(1, 0.0, 0.0)
    assert totals.pulls == [4, 1]
    assert totals.unpulled() is None
    totals.add(0, 1.0, 1.0)
    assert totals.pulls == [2, 1]  # only its own are struck out
    assert totals.means() == pytest.approx([2 / 3, 0.0])


def test_pulls_are_the_tests_and_the_steps_since_the_last_of_them():
    totals, rng, steps = ArmTotals(3), np.random.default_rng(4), []
    for _ in range(300):
        arm, exposure = int(rng.integers(3)), float(rng.integers(3) // 2 * 4)
        totals.add(arm, exposure / 2, exposure)
        steps.append((arm, exposure))
        for one in range(3):
            exposures = [exposure for arm, exposure in steps if arm == one]
            since = next((lag for lag, exposure in enumerate(reversed(exposures)) if exposure), len(exposures))
            assert totals.pulls[one] == sum(exposure > 0 for exposure in exposures) + since
            assert totals.untested[one] == since


def test_a_state_is_continued_and_one_from_before_untested_pulls_were_known_is_read():
    totals, continued = ArmTotals(1), ArmTotals(1)
    totals.add(0, 0.0, 0.0)
    continued.load_state_dict(json.loads(json.dumps(totals.state_dict())))
    continued.add(0, 1.0, 1.0)
    assert continued.pulls == [1]
    continued.load_state_dict({"pulls": [7], "gain": [3.0], "exposure": [4.0]})
    assert (continued.pulls, continued.untested) == ([7], [0])
    with pytest.raises(ValueError, match="arm totals need"):
        continued.load_state_dict({"pulls": [7], "gain": [3.0], "exposure": [4.0], "untested": [0, 0]})
