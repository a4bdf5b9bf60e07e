"""One arm a request: several drafters in one step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specsim.core import Draft, Order, StepContext, StepCost
from specsim.cost.examples import linear_table
from specsim.policies.build import build_controller
from specsim.policies.controller import Controller
from specsim.serving.mixture import common
from specsim.serving.slots import Slots
from specsim.sim import ClosedLoop, EngineConfig, simulate
from specsim.sim.mixed import Mixer
from specsim.sim.replay import Replay
from tests.sim.hand_trace import HandRequest, HandTrace, drafter

COST = linear_table(0.008, 0.0001, drafters={"deep": 0.004, "short": 0.001}, max_depth=4)
DECODE_ONLY = EngineConfig(prefill="excluded")
DRAFTERS = (drafter("deep", 4), drafter("short", 2))
LENGTH = 60


def request(deep, short, domain):
    return HandRequest(LENGTH, [[deep] * LENGTH, [short] * LENGTH], domain=domain, confidence=0.5)


@pytest.fixture
def trace():
    """Chat is for the deep drafter, code for the short one."""
    return HandTrace([request(4, 0, "chat"), request(0, 2, "code")] * 8, DRAFTERS)


def run(trace, policy, engine=DECODE_ONLY, **more):
    controller = build_controller(policy, trace.drafters)
    return simulate(trace, COST, controller, engine, ClosedLoop(4, 32), record_steps=True, **more), controller


PER_DOMAIN = "fixed_depth@contextual:policy=ucb1/c=.1,scope=request"


def test_each_drafter_drafts_for_its_own_requests_and_all_are_verified_at_once(trace):
    slots, state = np.arange(4), Slots(4)
    replay = Replay(trace, 4, LENGTH)
    for slot in range(4):
        replay.admit(slot, slot)
    state.emitted[:] = 1
    arms = np.array([0, 1, 1, 0])
    mixture = Mixer(replay, COST, [None, None]).mix(Order(0, 4, arms), slots, state, 100.0)
    assert mixture.draft.num_drafts.tolist() == [4, 2, 2, 4]
    assert mixture.acceptable.tolist() == [4, 2, 0, 0]  # chat, code, chat, code
    assert mixture.draft.scores["drawn_prob"].tolist() == [[0.5] * 4, [0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0.5] * 4]
    assert mixture.draft.arms is arms
    assert mixture.drafter == DRAFTERS[0]
    # Both drafters run, one after the other; the price of a step with the deep one for all lacks the short one's.
    assert mixture.draft_seconds == pytest.approx(0.001)


def test_a_context_limit_holds_for_its_own_drafter(trace):
    slots, state = np.arange(2), Slots(2)
    replay = Replay(trace, 2, LENGTH)
    for slot in range(2):
        replay.admit(slot, 0)
    state.emitted[:], state.length[:] = 1, 9
    mixture = Mixer(replay, COST, [10, None]).mix(Order(0, 4, np.array([0, 1])), slots, state, 100.0)
    assert mixture.draft.num_drafts.tolist() == [1, 2]


def test_what_holds_of_all_is_the_stricter():
    sampled = replace(DRAFTERS[1], law="sampled", structure="autoregressive", scores=("max_prob", "drawn_prob"))
    both = common((DRAFTERS[0], sampled))
    assert (both.name, both.law, both.structure) == ("deep+short", "sampled", "autoregressive")
    assert (both.scores, both.max_depth) == (("drawn_prob",), 4)
    assert common((sampled, DRAFTERS[0])).scores == ("drawn_prob",)


def test_every_request_settles_on_the_drafter_of_its_domain(trace):
    found, _ = run(trace, PER_DOMAIN)
    best_of_one, _ = run(trace, "fixed_depth@deep")
    # Chat takes 5 tokens a step from the deep drafter, code 3 from the short one; learning takes a step each.
    assert found.counts[0, 4, 4] > 0.9 * found.counts[0].sum()
    assert found.counts[1, 2, 2] > 0.9 * found.counts[1].sum()
    assert found.totals.num_emitted / found.totals.request_steps > 3.5
    assert best_of_one.totals.num_emitted / best_of_one.totals.request_steps < 3


def test_tokens_and_seconds_add_up(trace):
    found, _ = run(trace, PER_DOMAIN)
    assert found.requests["num_output_tokens"].tolist() == [LENGTH] * 32
    steps = found.steps
    assert steps["num_emitted"].sum() == found.totals.num_emitted
    assert int((found.counts * np.arange(5)[None, None, :]).sum()) == steps["num_accepted"].sum()
    mixed = (steps["batch"] == 4) & (steps["draft_seconds"] > 0.0045)
    assert mixed.sum() > 10
    assert steps["draft_seconds"][mixed] == pytest.approx(0.005)


def test_where_all_requests_agree_the_order_names_one_drafter():
    controller = build_controller("fixed_depth@contextual:policy=fixed_arm/arm=1,scope=request", DRAFTERS)
    context = StepContext(0, 0.0, 3, 0, 50.0, np.random.default_rng(0), ("a", "b", "a"))
    assert controller.choose(context) == Order(1, 2)


def test_where_all_requests_agree_it_is_the_step_of_one_drafter(trace):
    alike = HandTrace([request(4, 0, "chat")] * 16, DRAFTERS)
    by_request, _ = run(alike, "dcut@contextual:policy=fixed_arm,scope=request")
    by_batch, _ = run(alike, "dcut@deep")
    assert by_request.steps.tobytes() == by_batch.steps.tobytes()


def test_a_scope_of_one_request_and_of_one_batch_are_the_same_where_only_one_request_runs(trace):
    for policy in ("ucb1", "thompson_beta"):
        runs = []
        for scope in ("request", "batch"):
            controller = build_controller(f"dcut@contextual:policy={policy},scope={scope}", DRAFTERS)
            found = simulate(trace, COST, controller, DECODE_ONLY, ClosedLoop(1, 8), record_steps=True)
            runs.append((found.steps.tobytes(), controller.state_dict()))
        assert runs[0] == runs[1]


def test_prompts_preemption_and_own_histories_do_not_get_in_the_way(trace):
    engine = EngineConfig(num_kv_blocks=14, block_size=16)
    found, controller = run(trace, "dcut@contextual:policy=ucb1,by=request,scope=request", engine)
    assert found.totals.num_preemptions > 0
    assert found.requests["num_output_tokens"].tolist() == [LENGTH] * 32
    assert len(controller.drafter_policy.state_dict()) <= 4


def test_requests_that_learn_from_all_drafters_pay_for_all(trace):
    told, _ = run(trace, "fixed_depth@contextual:policy=hedge/rate=2,scope=request")
    assert told.totals.switch_seconds > 0
    assert told.counts[0, 4, 4] > 0.8 * told.counts[0].sum()


def test_the_same_seed_takes_identical_steps(trace):
    policy = "dcut@contextual:policy=thompson_beta,scope=request"
    first, second = (run(trace, policy, seed=3)[0].steps.tobytes() for _ in range(2))
    assert first == second


class ByDrafter:
    """A calibrator that knows drafters apart, and the second one too little."""

    scores = ("drawn_prob",)

    def __init__(self, warming=()):
        self.warming, self.observed = warming, []

    def calibrate(self, draft, score):
        return draft.scores[score] * {"deep": 1.0, "short": 0.5}[draft.drafter.name]

    def warming_up(self, draft):
        return draft.drafter.name in self.warming

    def observe(self, outcome):
        self.observed.append((outcome.draft.drafter.name, len(outcome.num_verify)))

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def mixed_draft():
    arms = np.array([0, 1, 0])
    return Draft(common(DRAFTERS), np.array([4, 2, 4]), {"drawn_prob": np.full((3, 4), 0.8)}, arms=arms)


def together(calibrator):
    parts = build_controller("fixed_ratio:ratio=.5@contextual:scope=request", DRAFTERS)
    return Controller(DRAFTERS, parts.drafter_policy, parts.budget_policy, calibrator)


def test_each_drafters_scores_are_calibrated_as_its_own():
    plan = together(ByDrafter()).plan(mixed_draft(), StepCost(np.linspace(0.01, 0.02, 13)))
    # Half of ten drafts: the best of .8 .64 .51 .41 of the deep drafter's two requests, against .4 .16.
    assert plan.num_verify.tolist() == [3, 0, 2]


def test_a_drafter_that_is_known_too_little_keeps_the_whole_step_from_being_pruned():
    plan = together(ByDrafter(warming=("short",))).plan(mixed_draft(), StepCost(np.linspace(0.01, 0.02, 13)))
    assert plan.num_verify.tolist() == [4, 2, 4]


def test_a_calibrator_hears_of_each_drafter_apart(trace):
    calibrator = ByDrafter()
    controller = together(calibrator)
    simulate(trace, COST, controller, DECODE_ONLY, ClosedLoop(4, 8))
    assert {name for name, _ in calibrator.observed} == {"deep", "short"}
    assert ("deep", 2) in calibrator.observed
