"""A depth settled before drafting by what was accepted and what it costs."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.core import StepCost, StepSeconds
from specsim.errors import InputError
from specsim.policies.acceptance_memory import AcceptanceMemory
from specsim.policies.build import build_controller
from specsim.policies.linear_seconds import LinearSeconds


def steps(controller, context, outcome, accepted, count, seconds=None):
    """Depths of some steps in which every request accepts so many drafts."""
    depths = []
    for _ in range(count):
        depth = controller.choose(context).depth
        took = seconds(context.batch, depth) if seconds else 0.01
        verify = np.full(context.batch, depth)
        controller.observe(outcome(verify, np.minimum(verify, accepted), seconds=took, depth=depth))
        depths.append(depth)
    return depths


def priced(context, seconds):
    """The context with these seconds of a step by depth, everything verified; fewer drafts would be dearer here."""

    def price(drafter, depth):
        budgets = np.full(context.batch * depth + 1, 99.0)
        budgets[-1] = seconds[depth]
        return StepCost(budgets)

    return replace(context, price=price)


class AcceptTests:
    """An outcome of which only the accept tests are known."""

    def __init__(self, tested, accepted):
        self.num_tested, self.num_accepted = np.array(tested), np.array(accepted)


@pytest.mark.parametrize(
    ("seconds", "best"),
    [([1, 1.2, 1.3, 2.0], 2), ([1, 1.6, 1.8, 2.0], 0), ([1, 1.1, 1.1, 1.1], 3), ([1, 1.5, 1.75, 2.0], 0)],
)
def test_it_takes_the_depth_of_the_largest_goodput_and_the_least_of_equals(seconds, best, drafter, context):
    # Chances .5, .5, .5: tokens 1, 1.5, 1.75, 1.875.
    controller = build_controller("goodput_depth:prior=.5", [drafter(max_depth=3)])
    assert controller.choose(priced(context, seconds)).depth == best


def test_nothing_known_drafts_deep_and_learns_to_stay_shallow(drafter, context, outcome):
    controller = build_controller("goodput_depth", [drafter(max_depth=3)])
    context = priced(context, [1, 1.1, 1.4, 1.7])
    depths = steps(controller, context, outcome, accepted=1, count=30)
    assert depths[0] == 3
    assert depths[2:] == [1] * 28


def test_a_position_that_is_not_reached_any_more_is_looked_at_again(drafter, context, outcome):
    controller = build_controller("goodput_depth:alpha=.2", [drafter(max_depth=3)])
    context = priced(context, [1, 1.4, 1.5, 1.6])
    depths = steps(controller, context, outcome, accepted=0, count=60)
    assert depths.count(0) > 40
    assert depths[20:].count(3) >= 1  # it forgot how bad drafts were, and looked


def test_the_past_is_each_drafters_own(drafter, context, outcome):
    controller = build_controller("goodput_depth@round_robin", [drafter("a", max_depth=3), drafter("b", max_depth=3)])
    context = priced(context, [1, 1.2, 1.4, 1.6])
    for _ in range(8):
        order = controller.choose(context)
        verify = np.full(4, order.depth)
        accepted = verify if order.arm else verify * 0
        controller.observe(outcome(verify, accepted, arm=order.arm, depth=order.depth))
    assert [controller.choose(context).depth for _ in range(2)] == [0, 3]


def test_pruned_drafts_are_no_rejections():
    # What a position's chance is learned from: 4 of 4 accepted where 2 of 6 drafts of each request were verified.
    memory = AcceptanceMemory(alpha=0.1, prior=0.5)
    memory.add("draft", AcceptTests([2, 2], [2, 2]))
    assert memory.chances("draft", 4).tolist() == pytest.approx([2.5 / 3, 2.5 / 3, 0.5, 0.5])


def test_counts_fade_towards_the_prior():
    memory = AcceptanceMemory(alpha=0.5, prior=1.0)
    memory.add("draft", AcceptTests([1] * 8, [0] * 8))
    seen = [memory.chances("draft", 1)[0]]
    for _ in range(3):
        memory.add("draft", AcceptTests([0], [0]))
        seen.append(memory.chances("draft", 1)[0])
    assert seen == pytest.approx([1 / 9, 1 / 5, 1 / 3, 1 / 2])


def test_without_a_cost_table_it_names_the_model_that_needs_none(drafter, context):
    controller = build_controller("goodput_depth", [drafter()])
    with pytest.raises(InputError, match="model=linear"):
        controller.choose(replace(context, price=None))


def test_the_linear_model_finds_the_line_it_was_shown(outcome):
    model = LinearSeconds(alpha=0.01)
    for batch in (4, 9, 16):
        for depth in (0, 1, 3, 5):
            told = outcome(np.full(batch, depth), np.zeros(batch), depth=depth)
            seconds = StepSeconds(draft=2e-3 * depth, verify=8e-3 + 1e-4 * batch * (depth + 1), switch=5.0, prefill=7.0)
            model.add(replace(told, seconds=seconds))
    expected = 8e-3 + 1e-4 * 12 * (np.arange(8) + 1) + 2e-3 * np.arange(8)
    assert model.predict(12, np.arange(8)) == pytest.approx(expected, rel=1e-4)


def test_the_linear_model_settles_on_the_best_depth_without_a_table(drafter, context, outcome):
    def seconds(batch, depth):
        return 0.01 + 0.001 * depth + 1e-4 * batch * (depth + 1)

    controller = build_controller("goodput_depth:model=linear", [drafter(max_depth=7)])
    depths = steps(controller, replace(context, price=None), outcome, accepted=3, count=60, seconds=seconds)
    assert depths[20:].count(3) >= 35  # the fourth draft is never accepted
