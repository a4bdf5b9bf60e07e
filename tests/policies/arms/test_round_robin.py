"""Round robin: each arm in turn."""

from specsim.policies.build import build_controller


def test_every_arm_has_its_turn_in_order(drafter, context):
    controller = build_controller("fixed_depth@round_robin", [drafter(name) for name in "abc"])
    assert [controller.choose(context).arm for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
