"""Fixed arm: one drafter, whatever happens."""

import pytest

from specsim.errors import InputError
from specsim.policies.build import build_controller


@pytest.mark.parametrize(("name", "arm"), [("a", 0), ("b", 1), ("fixed_arm", 0), ("fixed_arm:arm=1", 1)])
def test_it_pulls_the_drafter_it_was_named(name, arm, drafter, context, outcome):
    controller = build_controller(f"fixed_depth@{name}", [drafter("a"), drafter("b")])
    for _ in range(3):
        assert controller.choose(context).arm == arm
        controller.observe(outcome([3], [0], arm=arm))


def test_only_the_arm_it_pulls_must_fit_the_budget_policy(drafter):
    drafters = [drafter("fits"), drafter("lacks", scores=())]
    build_controller("dcut@fits", drafters)
    with pytest.raises(InputError, match="drafter lacks does not offer"):
        build_controller("dcut@lacks", drafters)


def test_an_arm_beyond_the_drafters_is_refused(drafter):
    with pytest.raises(InputError, match="arm 2 of 2 drafters: allowed 0 to 1"):
        build_controller("fixed_depth@fixed_arm:arm=2", [drafter("a"), drafter("b")])
