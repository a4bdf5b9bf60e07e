"""A bandit over depths with blocks, bins and a price of switching on."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.core import StepSeconds
from specsim.errors import InputError
from specsim.policies.budget.nightjar import DepthBandit
from specsim.policies.build import build_controller


def run(controller, context, outcome, tokens, count, batch=4, seed=0, switch=0.0):
    """Depths of some steps of a hundredth of a second plus a thousandth a draft: tokens[depth] each request."""
    rng, depths = np.random.default_rng(seed), []
    for _ in range(count):
        depth = controller.choose(replace(context, rng=rng, batch=batch)).depth
        emitted = np.full(batch, tokens[depth])
        told = outcome(np.full(batch, depth), emitted - 1, num_emitted=emitted, depth=depth)
        restarted = switch if depth and (not depths or depths[-1] == 0) else 0.0
        seconds = StepSeconds(verify=0.01, draft=0.001 * depth, switch=restarted)
        controller.observe(replace(told, seconds=seconds))
        depths.append(depth)
    return depths


def bins(bandit, count, depths=(0, 1, 2, 3)):
    """Length of each bin, as the depth is drawn anew only when one begins."""
    lengths = []
    for _ in range(count):
        before = (bandit.block, bandit.bin)
        bandit.pull(list(depths), 0.0, np.random.default_rng(0))
        lengths.append(0) if (bandit.block, bandit.bin) != before else None
        lengths[-1] += 1
    return lengths


def test_blocks_double_and_bins_are_the_root_of_their_block():
    # Blocks of 1, 2, 4, 8, 16 steps; the last bin of a block takes what is left.
    assert bins(DepthBandit(), 31) == [1, 2, 2, 2, 3, 3, 2, 4, 4, 4, 4]


def test_the_first_bin_of_a_block_explores_and_later_ones_less():
    explored = np.zeros(4)
    for seed in range(300):
        rng, bandit = np.random.default_rng(seed), DepthBandit()
        bandit.add(1, 1.0, 100.0)  # by far the best
        for _ in range(15):
            bandit.pull([0, 1], 0.0, rng)
        for index in range(4):  # the block of 16: four bins of four steps
            pulled = [bandit.pull([0, 1], 0.0, rng) for _ in range(4)]
            assert len(set(pulled)) == 1
            explored[index] += pulled[0] == 0
    # Half of what explores picks the other depth: 1/2, 1/4, 1/6, 1/8 of 300, four standard deviations at most.
    assert explored == pytest.approx([150, 75, 50, 37.5], abs=35)


def test_it_settles_on_the_depth_with_the_least_seconds_a_token(drafter, context, outcome):
    controller = build_controller("nightjar", [drafter(max_depth=3)])
    # Seconds a token: 10, 5.5, 6, 6.5 thousandths.
    depths = run(controller, context, outcome, [1, 2, 2, 2], 2000)
    assert max(range(4), key=depths[1000:].count) == 1
    assert depths[1000:].count(1) > 700


def test_drafts_that_never_pay_are_switched_off(drafter, context, outcome):
    controller = build_controller("nightjar", [drafter(max_depth=3)])
    depths = run(controller, context, outcome, [1, 1, 1, 1], 2000)
    assert depths[1000:].count(0) > 700


def test_each_range_of_batch_sizes_learns_apart(drafter, context, outcome):
    controller = build_controller("nightjar:bins=1/8,depths=0/3", [drafter(max_depth=3)])
    small = run(controller, context, outcome, [1, 0, 0, 4], 300, batch=7)
    large = run(controller, context, outcome, [1, 0, 0, 1], 300, batch=8)
    assert small[200:].count(3) > 60
    assert large[200:].count(0) > 60


@pytest.mark.parametrize(("switch", "expected"), [(0.0, 1), (0.004, 1), (0.0061, 0), (1.0, 0)])
def test_switching_on_again_must_pay_for_the_catching_up(switch, expected):
    # At depth 2 a token takes .007, at depth 0 .010: switching on may cost 2 x .003.
    bandit = DepthBandit()
    bandit.add(0, 0.010, 1.0)
    bandit.add(2, 0.007, 1.0)
    bandit.block, bandit.bin, bandit.block_left = 30, 10**6, 10**6  # a bin that exploits
    rng = np.random.default_rng(0)
    assert bandit.pull([0, 2], switch, rng) == 2 * expected


@pytest.mark.parametrize(("was_off", "expected"), [(True, 0), (False, 2)])
def test_only_a_step_after_one_without_drafts_pays_for_switching_on(was_off, expected, drafter, context):
    controller = build_controller("nightjar:depths=0/2", [drafter(max_depth=3)])
    controller.choose(context)
    memory = controller.budget_policy.memory
    bandit = memory.bandits["draft"][4]
    bandit.add(0, 0.010, 1.0)
    bandit.add(2, 0.007, 1.0)
    bandit.block, bandit.bin, bandit.block_left, bandit.bin_left = 30, 10**6, 10**6, 0
    memory.was_off, memory.switch_seconds, memory.switches = was_off, 0.02, 2
    assert controller.choose(context).depth == expected


def test_the_price_of_switching_on_is_the_mean_seen_so_far(drafter, context, outcome):
    controller = build_controller("nightjar:depths=0/1", [drafter(max_depth=3)])
    run(controller, context, outcome, [1, 2], 200, switch=0.02)
    memory = controller.budget_policy.memory
    assert memory.switches >= 2
    assert memory.switch_cost() == pytest.approx(0.02)
    assert memory.bandits["draft"][4].loss(1) == pytest.approx(0.011 / 2)  # and is in no depth's own seconds


def test_the_draws_come_from_the_context(drafter, context, outcome):
    played = [
        run(build_controller("nightjar", [drafter(max_depth=3)]), context, outcome, [1, 2, 3, 4], 50, seed=seed)
        for seed in (1, 1, 2)
    ]
    assert played[0] == played[1] != played[2]


def test_depths_beyond_the_drafter_are_as_deep_as_it_goes(drafter, context, outcome):
    drafters = [drafter("deep", max_depth=9), drafter("shallow", max_depth=2)]
    controller = build_controller("nightjar:depths=1/7@round_robin", drafters)
    seen = {controller.choose(context).depth for _ in range(60)}
    assert seen == {1, 2, 7}


@pytest.mark.parametrize(
    ("options", "words"), [("depths=3/1", "ascend"), ("depths=-1/1", "negative"), ("bins=2/8", "start at batch 1")]
)
def test_lists_in_disorder_are_refused(options, words, drafter):
    with pytest.raises(InputError, match=words):
        build_controller(f"nightjar:{options}", [drafter()])
