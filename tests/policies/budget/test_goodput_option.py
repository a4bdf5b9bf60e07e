"""`depth=goodput`: a depth settled before drafting by what drafting brought under the policy's own pruning."""

import json
from dataclasses import replace

import numpy as np
import pytest

from specsim.core import Order, StepCost, StepSeconds
from specsim.errors import InputError
from specsim.policies.budget.dcut import DCut
from specsim.policies.build import build_controller
from specsim.policies.drafting_past import FIRST_CREDIT, MOST_CREDIT
from specsim.policies.yield_memory import YieldMemory

BATCH = 4


def priced(context, draft, verify=0.0, step=0):
    """The context of a step that takes 1 second, `draft` for each depth and `verify` for each draft verified."""

    def price(drafter, depth):
        return StepCost(1.0 + draft * depth + verify * np.arange(context.batch * depth + 1))

    return replace(context, price=price, step=step)


class Loop:
    """A controller in a loop of steps whose drafts fare the same whenever they are made."""

    def __init__(self, controller, context, outcome, draft, verify=0.0, keeps=(15,) * BATCH, accepts=(0,) * BATCH):
        self.controller, self.context, self.outcome = controller, context, outcome
        self.prices = draft, verify
        self.keeps, self.accepts = np.array(keeps), np.array(accepts)
        self.step, self.tokens, self.plain_steps = 0, 0.0, 0.0

    def take(self, count, switch=0.0):
        """Depths of some steps; drafting after a plain step catches up for `switch` seconds."""
        depths = []
        for _ in range(count):
            context = priced(self.context, *self.prices, step=self.step)
            order = self.controller.choose(context)
            kept = np.minimum(self.keeps, order.depth)
            accepted = np.minimum(kept, self.accepts)
            drafter = self.controller.drafters[order.arm]
            seconds = StepSeconds(verify=float(context.price(drafter, order.depth).seconds[kept.sum()]))
            if order.depth and not (depths and depths[-1]):
                seconds = replace(seconds, switch=switch)
            told = self.outcome(kept, accepted, arm=order.arm, depth=order.depth)
            self.controller.observe(replace(told, seconds=seconds))
            self.tokens += 1.0 + accepted.mean()
            self.plain_steps += seconds.total
            self.step += 1
            depths.append(order.depth)
        return depths


@pytest.fixture
def loop(drafter, context, outcome):
    """A loop under `dcut:depth=goodput` with these options."""

    def make(options="", max_depth=3, drafters=None, arms="", **fares):
        arms_of_run = drafters or [drafter(max_depth=max_depth)]
        controller = build_controller(f"dcut:depth=goodput{options}{arms}", arms_of_run)
        return Loop(controller, context, outcome, **fares)

    return make


def goodputs(keeps, accepts, most, draft, verify):
    """Of each depth, when what is known of it is certain."""
    depths = range(most + 1)
    tokens = [1 + np.minimum(np.minimum(keeps, accepts), depth).mean() for depth in depths]
    seconds = [1 + draft * depth + verify * np.minimum(keeps, depth).sum() for depth in depths]
    return np.array(tokens) / np.array(seconds)


@pytest.mark.parametrize("draft", [0.01, 0.1, 0.2, 0.3, 0.6])
@pytest.mark.parametrize("keeps", [(7, 7, 7, 7), (7, 2, 1, 0), (4, 4, 0, 0)])
def test_it_settles_on_the_depth_of_the_largest_goodput_under_pruning(loop, keeps, draft):
    accepts = (6, 2, 1, 0)
    run = loop(",alpha=.001", max_depth=7, draft=draft, verify=0.02, keeps=keeps, accepts=accepts)
    best = int(goodputs(np.array(keeps), np.array(accepts), 7, draft, 0.02).argmax())
    depths = run.take(400)
    assert np.bincount(depths[300:]).argmax() == best


def test_pruning_changes_the_depth_though_acceptance_is_the_same(loop):
    # One request in four is worth drafting for. Verifying all of it, four drafts a position, would not pay.
    fares = {"draft": 0.1, "verify": 0.1, "accepts": (7, 0, 0, 0)}
    pruned = loop(",prior=0,alpha=.001", max_depth=7, keeps=(7, 0, 0, 0), **fares)
    whole = loop(",prior=0,alpha=.001", max_depth=7, keeps=(7, 7, 7, 7), **fares)
    for one in (pruned, whole):  # with prior 0 nothing is looked at: both are told
        past = one.controller.budget_policy.drafting._of("draft")
        for _ in range(50):
            past.yields.add(one.outcome(one.keeps.clip(max=7), np.minimum(one.keeps, one.accepts), depth=7))
    assert (set(pruned.take(5)), set(whole.take(5))) == ({7}, {0})


def test_nothing_known_is_taken_to_be_accepted_to_the_last(loop):
    assert loop(max_depth=3, draft=0.5).take(1) == [3]
    assert loop(max_depth=3, draft=1.5).take(1) == [0]


def test_what_a_step_could_lose_must_be_covered(loop):
    # The credit for a drafter that nobody knows is 4 tokens; what is verified for nothing counts as well.
    assert loop(max_depth=15, draft=0.6).take(1) == [6]
    assert loop(max_depth=15, draft=0.6, verify=0.08).take(1) == [4]  # .6 + 4 * .08 a depth


@pytest.mark.parametrize("switch", [0.0, 3.0])
@pytest.mark.parametrize(("draft", "max_depth"), [(0.05, 15), (0.3, 15), (0.9, 15), (0.6, 1)])
def test_drafting_in_vain_loses_no_more_than_it_may_and_is_tried_again(loop, draft, max_depth, switch):
    risk, steps = 0.02, 4000
    run = loop(f",risk={risk}", max_depth=max_depth, draft=draft)
    depths = run.take(steps, switch)
    # Catching up is a surprise the first time: before, nobody knew that it costs anything.
    assert run.plain_steps - run.tokens <= FIRST_CREDIT + switch + risk * steps
    assert np.count_nonzero(depths[steps // 2 :]) >= 1


def test_a_risk_of_nothing_spends_the_first_credit_and_rests(loop):
    run = loop(",risk=0", max_depth=15, draft=0.9)
    depths = run.take(3000)
    assert run.plain_steps - run.tokens <= FIRST_CREDIT
    assert not any(depths[-1000:])


def test_what_catching_up_took_is_expected_again_after_a_rest(loop):
    run = loop(max_depth=1, draft=0.5)
    past = run.controller.budget_policy.drafting._of("draft")
    assert run.take(1, switch=3.0) == [1]
    assert past.catch_up == 3.0
    assert run.take(3) == [0, 0, 0]  # four were tested and failed; while it rests, what it took is kept
    past.yields.counts *= 0.0
    past.credit = 3.4
    assert run.take(1) == [0]  # 3 to catch up and .5 to draft
    past.credit = 3.5
    assert run.take(1) == [1]


def test_while_it_drafts_on_it_need_not_catch_up(loop):
    run = loop(max_depth=1, draft=0.5, accepts=(1,) * BATCH)
    past = run.controller.budget_policy.drafting._of("draft")
    assert run.take(2, switch=3.0) == [1, 1]
    assert past.catch_up == 3.0  # of the first step; in the second there was nothing to catch up
    past.credit = 0.5
    assert run.take(1) == [1]


def test_a_step_that_was_chosen_and_never_came_teaches_nobody(drafter, context, outcome):
    drafters = [drafter("a", max_depth=3), drafter("b", max_depth=3)]
    policy = build_controller("dcut:depth=goodput@round_robin", drafters).budget_policy
    policy.draft_depth(priced(context, 0.1), drafters[0])
    policy.draft_depth(priced(context, 0.1, step=1), drafters[1])
    policy.observe(outcome([3] * BATCH, [0] * BATCH, depth=3))
    assert policy.drafting._of("a").yields.shares(1)[0][1] == pytest.approx(1)
    assert policy.drafting._of("b").yields.shares(1)[0][1] == pytest.approx(1 / 5)


@pytest.mark.parametrize("draft", [0.0, 0.0006])
@pytest.mark.parametrize("budget", ["dcut:numerator=bonus,ratios=all,", "dcut_causal:"])
def test_what_costs_next_to_nothing_is_drafted_all_the_way_where_pruning_may_leave_it(loop, budget, draft):
    # 15 drafts take .009 of a plain step at most, less than the .01 that may be lost; two of them are verified.
    run = loop(max_depth=15, draft=draft, keeps=(2,) * BATCH, accepts=(2,) * BATCH)
    run.controller = build_controller(f"{budget}depth=goodput,alpha=.001", run.controller.drafters)
    assert set(run.take(300)) == {15}


def test_what_costs_something_or_must_be_verified_is_drafted_as_deep_as_it_pays(loop):
    pays = {"keeps": (2,) * BATCH, "accepts": (2,) * BATCH}
    dearer = loop(",numerator=bonus,ratios=all,alpha=.001", max_depth=15, draft=0.003, **pays)
    verifies = loop(",numerator=paper,ratios=all,alpha=.001", max_depth=15, draft=0.0006, **pays)
    without_zero = loop(",numerator=bonus,alpha=.001", max_depth=15, draft=0.0006, **pays)
    for run in (dearer, verifies, without_zero):
        assert run.take(200)[-1] == 2


def test_next_to_nothing_is_too_much_once_the_credit_is_spent(loop):
    run = loop(",numerator=bonus,ratios=all", max_depth=15, draft=0.0006)
    past = run.controller.budget_policy.drafting._of("draft")
    past.credit = -1.0
    assert run.take(1) == [0]


def test_gains_are_credit_but_no_licence_without_end(loop):
    run = loop(max_depth=3, draft=0.1, accepts=(3,) * BATCH)
    run.take(500)
    past = run.controller.budget_policy.drafting._of("draft")
    assert past.credit == MOST_CREDIT


def test_a_better_drafter_is_noticed_after_a_rest(loop):
    run = loop(max_depth=3, draft=0.2)
    run.take(1000)
    run.accepts = np.full(BATCH, 3)
    depths = run.take(2000)
    assert set(depths[-500:]) == {3}


def test_a_plain_step_costs_no_credit_however_long_it_took(loop, outcome, context):
    run = loop(max_depth=1, draft=2.0)
    for step in range(10):
        assert run.controller.choose(priced(context, 2.0, step=step)).depth == 0
        run.controller.observe(outcome([0] * BATCH, [0] * BATCH, seconds=50.0, depth=0))
    past = run.controller.budget_policy.drafting._of("draft")
    assert past.credit == pytest.approx(FIRST_CREDIT + 10 * 0.01)


def test_pruned_and_missing_drafts_count_as_not_accepted(outcome):
    memory = YieldMemory(alpha=0.5, prior=0.0)
    memory.add(outcome([2, 1, 0, 2], [2, 0, 0, 1], depth=2))
    accepted, verified = memory.shares(2)
    # One request is added for the prior: 2 of 4 + 1 accepted at the first draft, 1 of those 2 + 1 at the second.
    assert accepted == pytest.approx([0, 2 / 5, 2 / 5 + 2 / 5 * 1 / 3])
    assert verified == pytest.approx([0, 3 / 5, 3 / 5 + 3 / 5 * 2 / 4])


def test_only_steps_drafted_so_deep_speak_of_a_position(outcome):
    memory = YieldMemory(alpha=0.1, prior=1.0)
    memory.add(outcome([1] * BATCH, [1] * BATCH, depth=1))
    assert memory.shares(3)[0] == pytest.approx([0, 1, 2, 3])  # beyond depth 1 the prior stands


def test_a_position_that_is_not_drafted_goes_back_to_the_prior(outcome):
    memory = YieldMemory(alpha=0.1, prior=1.0)
    memory.add(outcome([1] * BATCH, [0] * BATCH, depth=1))
    assert memory.shares(1)[0][1] == pytest.approx(1 / 5)
    for _ in range(100):
        memory.add(outcome([0] * BATCH, [0] * BATCH, depth=0))
    assert memory.shares(1)[0][1] == pytest.approx(1, abs=1e-3)


def test_a_step_that_is_chosen_again_counts_once(loop, context, outcome):
    once, twice = (loop(max_depth=3, draft=0.5) for _ in range(2))
    for run, times in ((once, 1), (twice, 2)):
        for _ in range(times):
            order = run.controller.choose(priced(context, 0.5))
        run.controller.observe(outcome([3] * BATCH, [1] * BATCH, depth=order.depth))
    assert once.controller.state_dict() == twice.controller.state_dict()


def test_requests_with_different_drafters_teach_each_by_its_own(drafter, context, outcome):
    drafters = [drafter("a", max_depth=3), drafter("b", max_depth=2)]
    controller = build_controller("dcut:depth=goodput@contextual:scope=request", drafters)
    context = replace(priced(context, 0.1, 0.01), domains=("x", "x", "y", "y"))
    policy = controller.budget_policy
    for one in drafters:
        policy.draft_depth(context, one)
    told = outcome([3, 3, 2, 2], [0, 0, 2, 2], depth=3)
    policy.observe(replace(told, order=Order(0, 3, np.array([0, 0, 1, 1]))))
    shares = {one.name: policy.drafting._of(one.name).yields.shares(1)[0][1] for one in drafters}
    assert shares == {"a": pytest.approx(1 / 3), "b": pytest.approx(1)}
    credits = {one.name: policy.drafting._of(one.name).credit for one in drafters}
    # As if each had drafted for all: 1 token in 1.3 seconds and 12 drafts verified, 3 tokens in 1.2 and 8.
    assert credits == {"a": pytest.approx(FIRST_CREDIT + 0.01 - 0.42), "b": pytest.approx(FIRST_CREDIT + 0.01 + 1.72)}


ARMS = [
    "ucb1:reward=throughput",
    "ucb1",
    "kl_ucb",
    "epsilon_greedy:reward=throughput,epsilon=0",
    "thompson_gaussian",
    "sliding_window_ucb:reward=throughput",
    "discounted_ucb:reward=throughput",
    "discounted_thompson_gaussian",
]


@pytest.mark.parametrize("budget", ["dcut:depth=goodput", "dcut_causal:depth=goodput", "goodput_depth"])
@pytest.mark.parametrize("arms", ARMS)
def test_a_bandit_leaves_an_arm_that_is_never_worth_drafting_with(drafter, context, outcome, budget, arms):
    # Were a pull that drafted nothing not told, an arm that has to be tried first would be tried for ever.
    drafters = [drafter("dear", max_depth=3), drafter("good", max_depth=3)]
    controller = build_controller(f"{budget}@{arms}", drafters)

    def price(drafter, depth):
        seconds = 1.0 + depth * (5.0 if drafter.name == "dear" else 0.05)
        return StepCost(np.full(BATCH * depth + 1, seconds))

    pulls = []
    for step in range(200):
        order = controller.choose(replace(context, price=price, step=step))
        verify = np.full(BATCH, order.depth)
        seconds = float(price(drafters[order.arm], order.depth).seconds[0])
        controller.observe(outcome(verify, verify, arm=order.arm, depth=order.depth, seconds=seconds))
        pulls.append(order.arm)
    assert np.mean(pulls[100:]) > 0.5


def test_a_plain_step_by_the_batch_size_still_says_nothing_of_an_arm(drafter, context, outcome):
    controller = build_controller("batch_schedule:schedule=1:0@ucb1:reward=throughput", [drafter("a"), drafter("b")])
    before = controller.state_dict()["drafter_policy"]
    order = controller.choose(context)
    controller.observe(outcome([0] * BATCH, [0] * BATCH, arm=order.arm, depth=order.depth))
    assert (order.depth, controller.state_dict()["drafter_policy"]) == (0, before)


def test_a_plain_step_of_requests_with_different_arms_is_told_to_each(drafter, context, outcome):
    drafters = [drafter("a", max_depth=3), drafter("b", max_depth=3)]
    controller = build_controller(
        "dcut:depth=goodput@contextual:policy=ucb1/reward=throughput,by=request,scope=request", drafters
    )
    context = priced(replace(context, requests=(7, 8, 9, 10)), 5.0)
    first = controller.choose(context)
    told = replace(outcome([0] * BATCH, [0] * BATCH, depth=0), requests=(7, 8, 9, 10))
    controller.observe(told)
    # One request ends and one comes: the old ones try arm b now, the new one arm a.
    context = replace(context, requests=(7, 8, 9, 11), step=1)
    second = controller.choose(context)
    assert (first.depth, second.depth, second.arms) == (0, 0, None)
    controller.observe(replace(told, requests=(7, 8, 9, 11)))
    states = controller.state_dict()["drafter_policy"]
    assert states["7"]["pulls"] == [1, 1]
    assert states["11"]["pulls"] == [1, 0]


def test_credit_and_catching_up_move_with_the_state(loop):
    run, again = (loop(max_depth=15, draft=0.4) for _ in range(2))
    run.take(7, switch=2.5)
    again.controller.load_state_dict(json.loads(json.dumps(run.controller.state_dict())))
    before, after = (one.controller.budget_policy.drafting._of("draft") for one in (run, again))
    assert (after.credit, after.catch_up) == (before.credit, before.catch_up)
    assert before.catch_up == 2.5


def test_a_learned_state_of_another_depth_is_refused(drafter):
    drafters = [drafter()]
    learned = build_controller("dcut:depth=goodput", drafters).state_dict()
    with pytest.raises(InputError, match="keeps no state"):
        build_controller("dcut", drafters).load_state_dict(learned)
    with pytest.raises(InputError, match="this state is not one of DCut"):
        build_controller("dcut:depth=goodput", drafters).load_state_dict(
            build_controller("dcut", drafters).state_dict()
        )


def test_without_prices_there_is_no_goodput(drafter, context):
    controller = build_controller("dcut:depth=goodput", [drafter()])
    with pytest.raises(InputError, match="no cost table"):
        controller.choose(replace(context, price=None))


@pytest.mark.parametrize("text", ["deep", "2.5", "goodput4"])
def test_what_is_neither_a_number_nor_goodput_is_refused_naming_both(drafter, text):
    with pytest.raises(InputError, match="allowed is a whole number of draft tokens, or goodput"):
        build_controller(f"dcut:depth={text}", [drafter()])


@pytest.mark.parametrize("text", ["dcut:alpha=.1", "dcut:depth=3,prior=.5", "slo_dcut:step_seconds=1,risk=.1"])
def test_options_of_goodput_are_refused_where_the_depth_is_a_number(drafter, text):
    with pytest.raises(InputError, match="alpha, prior and risk are options of depth=goodput"):
        build_controller(text, [drafter()])


@pytest.mark.parametrize("policy", ["dcut_lagged", "dspark", "fixed_ratio", "tetris"])
def test_policies_that_do_not_price_their_drafts_of_this_step_have_no_such_depth(drafter, policy):
    with pytest.raises(InputError, match="option depth = 'goodput'"):
        build_controller(f"{policy}:depth=goodput", [drafter()])


def test_a_bound_on_steps_still_holds(drafter, context):
    # Nothing known, goodput asks for 3 drafts; a step of 2 and one draft verified is the longest within the bound.
    controller = build_controller("slo_dcut:depth=goodput,step_seconds=1.25", [drafter(max_depth=3)])
    assert controller.choose(priced(context, 0.1, 0.02)).depth == 2


def test_it_is_the_policy_that_the_kernel_plans_for(drafter):
    controller = build_controller("dcut:ratios=all,numerator=bonus,depth=goodput", [drafter()])
    assert type(controller.budget_policy) is DCut
    assert (controller.max_depth, controller.budget_policy.max_depth) == (15, None)
    assert build_controller("dcut:depth=4", [drafter()]).max_depth == 4
