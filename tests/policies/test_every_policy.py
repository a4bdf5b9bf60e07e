"""What holds for every registered policy, whichever is added next."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from specsim.core import Counterfactual, Draft, Outcome, StepCost, StepSeconds
from specsim.cost.envelope import lower_envelope
from specsim.policies.budget.verify_ratio import as_fractions, drafts_at_ratio
from specsim.policies.build import ARMS, BUDGETS, CALIBRATORS, build_controller
from specsim.policies.config import ControllerConfig
from specsim.policies.ranking import accepted_estimate, best_first
from specsim.policies.survival import namespace, survival_scores

SPECS = {
    "autoregressive": ["autoregressive"],
    "fixed_depth": ["fixed_depth", "fixed_depth:depth=3"],
    "fixed_ratio": ["fixed_ratio", "fixed_ratio:ratio=.26,count=code"],
    "batch_schedule": ["batch_schedule:schedule=1:3/17:1", "batch_schedule:schedule=1:4/4:2,gate=.5,gate_window=8"],
    "ema_tiers": [
        "ema_tiers",
        "ema_tiers:rule=older,start=1,alpha=.5",
        "ema_tiers:tiers=1:0:2:4/4:0:1,interval=1,warmup=0,up=.1,down=-.2",
    ],
    "goodput_depth": ["goodput_depth", "goodput_depth:model=linear,alpha=.2,prior=.5,depth=3"],
    "nightjar": ["nightjar", "nightjar:depths=0/2/4,bins=1/3"],
    "confidence_stop": ["confidence_stop", "confidence_stop:keep=true,score=drawn_prob,threshold=.7"],
    "specdec_pp": ["specdec_pp", "specdec_pp:threshold=.3,score=max_prob"],
    "adaspec": ["adaspec", "adaspec:score=max_prob"],
    "dcut": [
        "dcut",
        "dcut:count=code,numerator=bonus",
        "dcut:ratios=all",
        "dcut:ratios=.07/.3/1,include_zero=true,numerator=bonus,score=max_prob",
        "dcut:ratios=all,numerator=bonus,depth=goodput,alpha=.1,prior=.8",
    ],
    "dcut_causal": ["dcut_causal", "dcut_causal:numerator=paper,score=drawn_prob", "dcut_causal:depth=goodput"],
    "dcut_lagged": ["dcut_lagged", "dcut_lagged:lag=3,start=optimistic,count=code,ratios=.1/.6"],
    "dspark": ["dspark", "dspark:start=corrected"],
    "tetris": ["tetris", "tetris:capacity=9"],
    "slo_dcut": [
        "slo_dcut:step_seconds=.015",
        "slo_dcut:tpot_seconds=.009,numerator=paper,include_zero=false,ratios=.3/1",
        "slo_dcut:step_seconds=.016,tpot_seconds=.008,give_up=0,count=code,score=max_prob",
        "slo_dcut:step_seconds=.016,depth=goodput",
    ],
    "clairvoyant": ["clairvoyant"],
}
"""Texts that exercise every option of every budget policy."""

EVERY_SPEC = [spec for specs in SPECS.values() for spec in specs]

PAIRS = [(spec, "ucb1") for spec in EVERY_SPEC] + [("dcut", arms) for arms in ARMS if arms != "ucb1"]
"""Every budget policy with one drafter policy, and every drafter policy with one budget policy."""


def hard_drafts():
    """By name, confidences [B, D] and drafted lengths [B] on which libraries could differ."""
    rng = np.random.default_rng(20)
    full = rng.beta(4, 1.2, (32, 15))
    ragged = rng.integers(0, 16, 32)
    return {
        "plain": (full, np.full(32, 15)),
        "ties": (rng.choice([0.5, 1.0], (32, 15)), np.full(32, 15)),
        "ones": (np.ones((8, 7)), np.full(8, 7)),
        "zeros": (np.zeros((8, 7)), np.full(8, 7)),
        "underflow": (np.full((4, 15), 1e-30), np.full(4, 15)),
        "subnormal": (np.full((4, 15), 1e-22), np.full(4, 15)),
        "nan": (np.where(rng.random((16, 15)) < 0.2, np.nan, rng.random((16, 15))), np.full(16, 15)),
        "beyond one": (rng.random((16, 15)) * 1.2 - 0.1, np.full(16, 15)),
        "ragged": (np.where(np.arange(15) < ragged[:, None], full, 0.0), ragged),
        "nothing drafted": (np.zeros((3, 4)), np.zeros(3)),
        "one of each": (np.full((1, 1), 0.7), np.ones(1)),
        "empty batch": (np.zeros((0, 15)), np.zeros(0)),
        "empty draft": (np.zeros((3, 0)), np.zeros(3)),
        "fixed-point halves": (rng.integers(0, 2**32, (16, 15)) / 2**32, np.full(16, 15)),
    }


def hard_steps():
    """By name, each of them at a smooth, a stepped and a flat cost: seconds [B * D + 1]."""
    for name, (confidence, num_drafts) in hard_drafts().items():
        budgets = np.arange(confidence.size + 1)
        prices = {
            "smooth": 1e-3 + 1e-5 * budgets**1.1,
            "stairs": 0.01 + 0.004 * np.ceil((len(confidence) + budgets) / 64),
            "flat": np.full(len(budgets), 0.01),
        }
        for price, seconds in prices.items():
            yield f"{name}, {price}", (confidence, num_drafts.astype(np.int64), seconds)


STEPS = dict(hard_steps())


def priced(seconds, xp=np):
    """A step's cost on a library, its envelope worked out on the host as engines do."""
    return StepCost(xp.asarray(seconds.copy()), xp.asarray(lower_envelope(seconds)))


def plan(spec, step, proposal, xp=np):
    confidence, num_drafts, seconds = step
    acceptable = (num_drafts * 2 + 1) // 3
    draft = proposal(confidence, num_drafts, xp, acceptable)
    controller = build_controller(spec, [draft.drafter])
    return draft, controller.plan(draft, priced(seconds, xp)).num_verify


def bits(array):
    """Shape, type and bytes: equal only if every bit is."""
    array = np.from_dlpack(array)
    return array.shape, array.dtype, np.ascontiguousarray(array).tobytes()


def test_every_registered_policy_is_tested_here():
    assert SPECS.keys() == BUDGETS.keys()


@pytest.mark.parametrize("spec", EVERY_SPEC)
def test_every_library_makes_the_same_plan(spec, library, proposal):
    for name, step in STEPS.items():
        _, expected = plan(spec, step, proposal)
        _, got = plan(spec, step, proposal, library)
        assert bits(got) == bits(expected), name


def test_every_library_scores_and_estimates_to_the_same_bits(library):
    def everything(confidence, num_drafts):
        xp = namespace(confidence)
        scores = survival_scores(confidence, num_drafts, xp)
        negated = best_first(scores, xp)
        fractions = xp.asarray(as_fractions((0.07, 0.25, 0.5, 1.0)))
        budgets = [drafts_at_ratio(fractions, num_drafts, count, xp) for count in ("paper", "code")]
        estimates = [accepted_estimate(negated, budget, xp) for budget in budgets]
        return [bits(array) for array in (scores, negated, *budgets, *estimates)]

    for name, (raw, num_drafts, _) in STEPS.items():
        if raw.size:  # a step without a position is planned before anything is scored
            confidence = np.where(raw > 0, np.minimum(raw, 1.0), 0.0)
            got = everything(library.asarray(confidence.copy()), library.asarray(num_drafts.copy()))
            assert got == everything(confidence, num_drafts), name


@pytest.mark.parametrize("spec", EVERY_SPEC)
def test_a_plan_stays_within_what_was_drafted(spec, proposal):
    for name, step in STEPS.items():
        draft, num_verify = plan(spec, step, proposal)
        assert num_verify.dtype == np.int64, name
        assert num_verify.shape == draft.num_drafts.shape, name
        assert np.all(num_verify >= 0), name
        assert np.all(num_verify <= draft.num_drafts), name


@pytest.mark.parametrize("spec", EVERY_SPEC)
def test_inputs_are_not_written_to(spec, library, proposal):
    step = STEPS["ragged, stairs"]
    confidence, num_drafts, seconds = step
    draft = proposal(confidence, num_drafts, library, num_drafts)
    cost = priced(seconds, library)
    controller = build_controller(spec, [draft.drafter])
    arrays = [draft.num_drafts, draft.num_acceptable, cost.seconds, *draft.scores.values()]
    before = [bits(array) for array in arrays]
    controller.plan(draft, cost)
    assert [bits(array) for array in arrays] == before


@pytest.mark.parametrize("spec", EVERY_SPEC)
def test_the_same_draft_is_planned_the_same_again(spec, proposal):
    confidence, num_drafts, seconds = STEPS["ragged, stairs"]
    draft = proposal(confidence, num_drafts, np, num_drafts)
    controller = build_controller(spec, [draft.drafter])
    first, second = (controller.plan(draft, priced(seconds)).num_verify.tolist() for _ in range(2))
    assert first == second


def play(controller, rng, context, num_steps):
    """Arms, depths and plans of some steps on drafts that two of three tokens survive."""
    played = []
    for index in range(num_steps):
        order = controller.choose(replace(context, step=index, rng=rng))
        drafter, size = controller.drafters[order.arm], 4 * order.depth
        scores = dict.fromkeys(drafter.scores, rng.random((4, order.depth)))
        acceptable = rng.binomial(order.depth, 0.6, 4) if order.depth else np.zeros(4, np.int64)
        ages = np.full(4, index) if index < 40 else np.array([index, index - 40, index, index])  # one leaves, one comes
        slots = np.array([5, 0, 2, 1])
        draft = Draft(drafter, np.full(4, order.depth), scores, acceptable, slots=slots, ages=ages)
        num_verify = controller.plan(draft, priced(np.linspace(0.01, 0.02, size + 1))).num_verify
        accepted = np.minimum(num_verify, acceptable)
        seconds = StepSeconds(draft=0.001 * (1 + order.arm), verify=0.01 + 1e-4 * float(num_verify.sum()))
        every = np.stack([np.minimum(acceptable, arm + 1) for arm in range(len(controller.drafters))])
        told = Counterfactual(every, every + (every < 3)) if controller.full_information else None
        controller.observe(Outcome(order, draft, num_verify, accepted, accepted + 1, seconds, counterfactual=told))
        played.append((order, num_verify.tolist()))
    return played


@pytest.mark.parametrize(("spec", "arms"), PAIRS)
def test_a_state_moves_through_json_and_continues_identically(spec, arms, drafter, context):
    drafters = [drafter("a", max_depth=4), drafter("b", max_depth=6), drafter("c", max_depth=6)]
    original, continued = (build_controller(f"{spec}@{arms}", drafters) for _ in range(2))
    play(original, np.random.default_rng(1), context, 31)  # in the middle of a round of three
    state = json.loads(json.dumps(original.state_dict(), allow_nan=False))
    continued.load_state_dict(state)
    assert continued.state_dict() == original.state_dict()
    pickled = pickle.loads(pickle.dumps(original))
    expected = play(original, np.random.default_rng(2), context, 60)
    assert play(continued, np.random.default_rng(2), context, 60) == expected
    assert play(pickled, np.random.default_rng(2), context, 60) == expected


@pytest.mark.parametrize("arms", ARMS.keys() - {"fixed_arm", "round_robin"})
def test_a_state_is_a_copy_that_later_steps_leave_alone(arms, drafter, context):
    controller = build_controller(f"fixed_depth@{arms}", [drafter("a"), drafter("b")])
    play(controller, np.random.default_rng(1), context, 5)
    state = controller.state_dict()
    before = json.dumps(state)
    play(controller, np.random.default_rng(1), context, 5)
    assert json.dumps(state) == before
    assert json.dumps(controller.state_dict()) != before


@pytest.mark.parametrize(("spec", "arms"), [*PAIRS, ("dcut", "b")])
def test_a_controllers_own_config_builds_it_again(spec, arms, drafter):
    drafters = [drafter("a"), drafter("b")]
    controller = build_controller(f"{spec}@{arms}", drafters)
    for config in (
        controller.config,
        str(controller.config),
        ControllerConfig.model_validate_json(controller.config.model_dump_json()),
    ):
        again = build_controller(config, drafters)
        assert again.config == controller.config
        assert again.label == controller.label
        assert again.budget_policy == controller.budget_policy
        assert again.drafter_policy == controller.drafter_policy


def test_names_are_what_a_user_may_write():
    for name in (*BUDGETS, *ARMS, *CALIBRATORS):
        assert name.isidentifier()
        assert name == name.lower()
