"""Pruned positions never bias a reward: under D-cut, accepted / drafted would choose the wrong drafter."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.core import Draft, Outcome, StepCost, StepSeconds
from specsim.policies import rewards
from specsim.policies.build import build_controller

BATCH = 16
LONG, SHORT = 0, 1
ACCEPTANCE = {LONG: 0.8, SHORT: 0.55}
"""Chance that a draft is accepted once those before it are: the long drafter is better at every position."""

LEARNING = (
    "ucb1",
    "thompson_beta",
    "kl_ucb",
    "epsilon_greedy",
    "sliding_window_ucb",
    "discounted_ucb",
    "change_point",
)


@pytest.fixture
def drafters(drafter):
    """A block drafter of fifteen tokens, and one of two."""
    return [drafter("long", max_depth=15), drafter("short", max_depth=2)]


def steep(batch, depth):
    """Twelve milliseconds, and a tenth more for each draft verified: deep pruning pays."""
    return StepCost(0.012 + 0.0012 * np.arange(batch * depth + 1))


def play(controller, context, num_steps=800):
    """Arms pulled, drafts drafted and drafts verified, by arm, under confidences that are true."""
    rng = np.random.default_rng(11)
    counts = np.zeros((2, 3))
    for index in range(num_steps):
        order = controller.choose(replace(context, step=index, rng=rng))
        drafter, chance = controller.drafters[order.arm], ACCEPTANCE[order.arm]
        confidence = np.full((BATCH, order.depth), chance)
        draft = Draft(drafter, np.full(BATCH, order.depth), dict.fromkeys(drafter.scores, confidence))
        cost = steep(BATCH, order.depth)
        num_verify = controller.plan(draft, cost).num_verify
        acceptable = np.cumprod(rng.random((BATCH, order.depth)) < chance, axis=1).sum(axis=1)
        accepted = np.minimum(acceptable, num_verify)
        seconds = StepSeconds(verify=float(cost.seconds[num_verify.sum()]))
        controller.observe(Outcome(order, draft, num_verify, accepted, accepted + 1, seconds))
        counts[order.arm] += 1, draft.num_drafts.sum(), num_verify.sum()
    return counts


def accepted_over_drafted(outcome):
    """What one would write without thinking of pruning."""
    return float(outcome.num_accepted.sum()), float(outcome.draft.num_drafts.sum())


@pytest.mark.parametrize("arms", LEARNING)
def test_under_dcut_the_better_drafter_is_chosen(arms, drafters, context):
    counts = play(build_controller(f"dcut@{arms}", drafters), context)
    assert counts[LONG, 0] > 0.7 * counts[:, 0].sum()
    assert counts[LONG, 2] < 0.5 * counts[LONG, 1]  # most of what it drafts is pruned


def test_the_adversarial_policy_finds_it_too_though_slowly(drafters, context):
    counts = play(build_controller("dcut@exp3s:gamma=.2", drafters), context, 2500)
    assert counts[LONG, 0] > 0.7 * counts[:, 0].sum()


def test_a_naive_accepted_over_drafted_reward_picks_the_wrong_drafter_and_ours_the_right_one(
    drafters, context, monkeypatch
):
    ours = play(build_controller("dcut@ucb1", drafters), context)
    monkeypatch.setitem(rewards.REWARDS, "accepted_fraction", accepted_over_drafted)
    naive = play(build_controller("dcut@ucb1", drafters), context)
    assert ours[LONG, 0] > 0.7 * ours[:, 0].sum()
    assert naive[SHORT, 0] > 0.7 * naive[:, 0].sum()


def test_what_pruning_leaves_untested_moves_no_mean(drafters, context):
    means = {}
    for budget in ("fixed_depth", "dcut", "fixed_ratio:ratio=.1"):
        controller = build_controller(f"{budget}@round_robin", drafters)
        controller.drafter_policy = learner = Recorder(controller.drafter_policy)
        play(controller, context, 400)
        means[budget] = learner.totals.means()
    for budget in ("dcut", "fixed_ratio:ratio=.1"):
        assert means[budget] == pytest.approx([0.8, 0.55], abs=0.03), budget
        assert means[budget] == pytest.approx(means["fixed_depth"], abs=0.03), budget


class Recorder:
    """Takes turns like the policy it wraps, and keeps the totals a learning policy would keep."""

    def __init__(self, turns):
        from specsim.policies.arms.arm_totals import ArmTotals

        self.turns, self.totals = turns, ArmTotals(2)
        self.arms, self.pull = turns.arms, turns.pull

    def update(self, arm, outcome):
        self.totals.add(arm, *rewards.REWARDS["accepted_fraction"](outcome))
