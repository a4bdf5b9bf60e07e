"""The controller: what it refuses, what it cleans, what it passes on."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from specsim.core import Order, StepCost
from specsim.errors import InputError
from specsim.policies.arms.fixed_arm import FixedArm
from specsim.policies.budget.dcut import DCut
from specsim.policies.budget.fixed_depth import FixedDepth
from specsim.policies.build import build_controller
from specsim.policies.controller import Controller


def plan(controller, draft):
    size = draft.scores["drawn_prob"].size
    return controller.plan(draft, StepCost(np.linspace(1.0, 2.0, size + 1))).num_verify.tolist()


def test_it_is_put_together_from_any_three_parts(drafter, context, outcome):
    class Deeper:
        """A budget policy of a user's own, that deepens as it learns."""

        score, timing, clairvoyant, drafts, max_depth = None, "past", False, True, None
        current = 1

        def draft_depth(self, context, drafter):
            return self.current

        def plan(self, draft, confidence, cost):
            assert confidence.shape == (2, 3)
            return draft.num_drafts

        def observe(self, outcome):
            self.current += 1

        def state_dict(self):
            return {"current": self.current}

        def load_state_dict(self, state):
            self.current = state["current"]

    controller = Controller([drafter(max_depth=3)], FixedArm(num_arms=1), Deeper())
    depths = []
    for _ in range(5):
        depths.append(controller.choose(context).depth)
        controller.observe(outcome([1], [1]))
    assert depths == [1, 2, 3, 3, 3]  # never deeper than the drafter
    draft = replace(outcome([3, 3], [0, 0]).draft, scores={})
    assert controller.plan(draft, StepCost(np.ones(7))).num_verify.tolist() == [3, 3]
    assert controller.label == "Deeper"
    assert controller.config is None


def test_randomness_comes_from_the_context(drafter, context):
    drafters = [drafter("a"), drafter("b")]
    arms = []
    for _ in range(2):
        controller = build_controller("fixed_depth@thompson_beta", drafters)
        rng = np.random.default_rng(11)
        arms.append([controller.choose(replace(context, rng=rng)).arm for _ in range(40)])
    assert arms[0] == arms[1]
    assert set(arms[0]) == {0, 1}


@pytest.mark.parametrize("spec", ["dcut", "fixed_ratio:ratio=.34"])
def test_a_score_that_is_no_number_counts_as_no_confidence(spec, proposal):
    values = np.array([[0.9, np.nan, 0.9], [0.5, 0.6, 0.5]])
    with_nan, with_zero = proposal(values), proposal(np.nan_to_num(values, nan=0.0))
    controller = build_controller(spec, [with_nan.drafter])
    assert plan(controller, with_nan) == plan(controller, with_zero)


def test_every_part_learns_from_a_step(drafter, outcome):
    class Listener:
        """All three parts in one, that remembers what it is told."""

        arms, scores = (0,), ()
        score, timing, clairvoyant, drafts, max_depth = None, "past", False, True, None

        def __init__(self):
            self.heard = []

        def observe(self, outcome):
            self.heard.append(outcome)

        def update(self, arm, outcome):
            self.heard.append((arm, outcome))

    arms, budget, calibrator = Listener(), Listener(), Listener()
    controller = Controller([drafter()], arms, budget, calibrator)
    told = outcome([3], [1])
    controller.observe(told)
    assert (arms.heard, budget.heard, calibrator.heard) == ([(0, told)], [told], [told])


@pytest.mark.parametrize(
    ("spec", "deepest"),
    [
        ("autoregressive", 0),
        ("dcut@shallow", 3),
        ("dcut@ucb1", 9),
        ("fixed_depth:depth=5@ucb1", 5),
        ("fixed_depth:depth=5@deep", 5),
        ("fixed_depth:depth=9@ucb1", 9),
    ],
)
def test_an_engine_can_reserve_for_the_deepest_draft_it_may_order(spec, deepest, drafter):
    drafters = [drafter("shallow", max_depth=3), drafter("deep", max_depth=9)]
    assert build_controller(spec, drafters).max_depth == deepest


def test_a_score_that_is_no_number_is_no_confidence_whatever_a_calibrator_makes_of_it(proposal):
    class Optimist:
        scores = ("drawn_prob",)

        def calibrate(self, draft, score):
            return np.full((2, 2), 0.9)

        def warming_up(self, draft):
            return False

    draft = proposal([[np.nan, 0.5], [0.5, 0.5]])
    controller = Controller([draft.drafter], FixedArm(num_arms=1), DCut(ratios=(0.5,)), Optimist())
    assert plan(controller, draft) == [0, 2]


def test_confidences_outside_their_range_cannot_make_survival_rise(proposal):
    draft = proposal([[0.5, 3.0], [0.9, 0.9], [-1.0, 0.9]])  # not .5 * 3 = 1.5, which would come before its own prefix
    assert plan(build_controller("dcut:ratios=.16", [draft.drafter]), draft) == [0, 1, 0]
    assert plan(build_controller("dcut:ratios=1", [draft.drafter]), draft) == [2, 2, 2]


@pytest.mark.parametrize("spec", ["autoregressive", "fixed_depth", "fixed_ratio", "dcut", "clairvoyant"])
@pytest.mark.parametrize("shape", [(0, 15), (3, 0), (0, 0)])
def test_case_17_an_empty_batch_and_an_empty_draft_are_planned_too(spec, shape, proposal):
    draft = proposal(np.zeros(shape))
    controller = build_controller(spec, [draft.drafter])
    assert controller.plan(draft, StepCost(np.array([0.01]))).num_verify.tolist() == [0] * shape[0]


def test_a_plain_step_needs_no_score(proposal):
    draft = replace(proposal(np.zeros((3, 0))), scores={})
    controller = build_controller("dcut", [draft.drafter])
    assert controller.plan(draft, StepCost(np.array([0.01]))).num_verify.tolist() == [0, 0, 0]


def test_a_step_without_a_draft_teaches_nothing_of_the_arm(drafter, outcome):
    controller = build_controller("dcut@ucb1", [drafter("a"), drafter("b")])
    before = controller.state_dict()
    controller.observe(replace(outcome([0], [0]), order=Order(arm=1, depth=0)))
    assert controller.state_dict() == before
    controller.observe(replace(outcome([0], [0]), order=Order(arm=1, depth=4)))
    assert controller.state_dict() != before


def test_a_score_the_drafter_does_not_offer_is_refused_naming_what_it_does(drafter):
    with pytest.raises(InputError) as error:
        build_controller("dcut:score=shifted_prob", [drafter("exit24", scores=("drawn_prob", "max_prob"))])
    assert str(error.value) == (
        "dcut:score=shifted_prob: reads score shifted_prob, which drafter exit24 does not offer"
        " (it offers: drawn_prob, max_prob)"
    )


def test_a_score_missing_from_one_draft_is_refused_too(proposal):
    draft = proposal(np.ones((1, 2)))
    controller = build_controller("dcut", [draft.drafter])
    with pytest.raises(InputError, match=r"drawn_prob, which drafter draft does not offer \(it offers: max_prob\)"):
        controller.plan(replace(draft, scores={"max_prob": draft.scores["max_prob"]}), StepCost(np.ones(3)))


def test_a_margin_is_no_probability(drafter):
    with pytest.raises(InputError, match="IdentityCalibrator cannot turn score margin into a probability"):
        build_controller("dcut:score=margin", [drafter()])


def test_costs_that_do_not_cover_every_budget_are_refused(proposal):
    draft = proposal(np.ones((2, 3)))
    for spec in ("dcut", "fixed_ratio"):
        controller = build_controller(spec, [draft.drafter])
        with pytest.raises(ValueError, match=r"6 costs for the 7 budgets"):
            controller.plan(draft, StepCost(np.ones(6)))


# Which arm, which budget policy, and the words that must name them.
INEXACT = [
    ("dcut", "sampled", "parallel", ("score drawn_prob", "budget by argmax", "sampled, parallel", "score=max_prob")),
    ("dcut", "sampled", "autoregressive", ("score drawn_prob", "sampled, autoregressive", "fixed_ratio")),
    ("fixed_ratio", "sampled", "parallel", ("score drawn_prob", "budget by fixed", "score=max_prob")),
    ("dcut:score=max_prob", "sampled", "autoregressive", ("score max_prob", "budget by argmax", "fixed_ratio")),
    ("dcut:score=shifted_prob", "sampled", "parallel", ("score shifted_prob", "budget by argmax", "score=max_prob")),
]


@pytest.mark.parametrize(("spec", "law", "structure", "words"), INEXACT)
def test_an_inexact_combination_is_refused_naming_both_sides_and_the_remedy(spec, law, structure, words, drafter):
    drafters = [drafter("greedy"), drafter("sampler", law=law, structure=structure)]
    for arms in ("sampler", "ucb1", "round_robin"):
        with pytest.raises(InputError) as error:
            build_controller(f"{spec}@{arms}", drafters)
        message = str(error.value)
        assert "\n" not in message
        for word in (*words, "drafter sampler", "--allow-lossy"):
            assert word in message
    assert not build_controller(f"{spec}@greedy", drafters).lossy


def test_what_is_allowed_though_inexact_is_marked(drafter):
    drafters = [drafter("greedy"), drafter("sampler", law="sampled")]
    lossy = build_controller("dcut@ucb1", drafters, allow_lossy=True)
    assert lossy.lossy
    assert "drafter sampler (sampled, parallel)" in lossy.lossy_reason
    exact = build_controller("dcut@greedy", drafters, allow_lossy=True)
    assert not exact.lossy
    assert exact.lossy_reason is None


def test_it_pickles_with_what_it_learned(drafter, context, outcome):
    controller = build_controller("dcut@ucb1", [drafter("a"), drafter("b")])
    for arm in (0, 1, 1):
        controller.observe(outcome([4, 4], [2, 4], arm=arm))
    copy = pickle.loads(pickle.dumps(controller))
    assert copy.state_dict() == controller.state_dict()
    assert copy.label == controller.label
    assert copy.choose(context) == controller.choose(context)


def test_a_state_of_other_drafters_is_refused(drafter):
    state = build_controller("dcut@ucb1", [drafter("a"), drafter("b")]).state_dict()
    other = build_controller("dcut@ucb1", [drafter("a"), drafter("c")])
    with pytest.raises(InputError, match=r"learned on drafters \['a', 'b'\], this run has \['a', 'c'\]"):
        other.load_state_dict(json.loads(json.dumps(state)))


def test_a_state_of_another_policy_is_refused(drafter):
    drafters = [drafter("a"), drafter("b")]
    states = {name: build_controller(f"dcut@{name}", drafters).state_dict() for name in ("a", "ucb1", "thompson_beta")}
    for learned, state in states.items():
        for name in states.keys() - {learned}:
            with pytest.raises(InputError):
                build_controller(f"dcut@{name}", drafters).load_state_dict(state)


def test_policies_are_usable_alone(proposal):
    draft = proposal([[0.9, 0.5]])
    assert DCut(ratios=(0.5,)).plan(draft, draft.scores["drawn_prob"], StepCost(np.ones(3))).tolist() == [1]
    assert FixedDepth(depth=2).plan(draft, draft.scores["drawn_prob"], StepCost(np.ones(3))).tolist() == [2]
