"""One controller for simulator and engine: every decision of a live run is made again, bit for bit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from specsim.core import DrafterSpec, StepCost
from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.live.acceptor import TargetAcceptor
from specsim.live.drafters.batch import Drafted
from specsim.live.models import load_model
from specsim.live.sampling import SamplingParams
from specsim.policies.build import ARMS, BUDGETS, CALIBRATORS
from specsim.serving.run_file import read_run_file
from specsim.study.parity.compare import parity
from specsim.trace import Trace
from tests.live.engine.engines import DRAFTERS, early_exit
from tests.live.parity_runs import TABLE, record, take_again
from tests.policies.test_every_policy import SPECS

LIVE_ARMS = [name for name, arms in ARMS.items() if not getattr(arms, "full_information", False)]
POLICIES = [spec for name, specs in SPECS.items() if not BUDGETS[name].clairvoyant for spec in specs]
CALIBRATED = {
    "temperature": "dcut~temperature:refit_every=2@ucb1",
    "isotonic": "dcut~isotonic:refit_every=2@ucb1",
    "logistic": "dcut:score=margin~logistic:refit_every=2,warm_up=1@exit3",
}
OPTIONS = {
    "contextual": ["contextual", "contextual:scope=request", "contextual:by=request,scope=request"],
    "ucb1": ["ucb1", "ucb1:reward=throughput"],
}


@pytest.fixture(scope="module")
def target(make_target):
    """A model whose outputs end early here and there."""
    return make_target("float64", eos_token_id=[16])


def with_arms(spec, arms="round_robin"):
    """Both drafters where both offer the score that the policy reads, else the one that does."""
    return f"{spec}@exit3" if reads_more_than_ngram_offers(spec) else f"{spec}@{arms}"


def reads_more_than_ngram_offers(spec):
    name = spec.split(":")[0]
    score = getattr(BUDGETS[name], "score", None)
    return "max_prob" in spec or (score == "max_prob" and "score=" not in spec)


def check(recorded):
    """Taken again, every step is the same."""
    steps, difference = take_again(recorded.folder)
    assert difference is None, difference
    assert len(steps) == recorded.engine.tally.totals.num_steps
    return steps


@pytest.mark.parametrize("spec", POLICIES)
def test_every_policy_decides_again_as_it_did_live(target, tmp_path, spec):
    check(record(target, with_arms(spec), tmp_path / "run"))


@pytest.mark.parametrize("arms", [spec for name in LIVE_ARMS for spec in OPTIONS.get(name, [name])])
def test_every_drafter_policy_pulls_again_what_it_pulled_live(target, tmp_path, arms):
    check(record(target, f"dcut@{arms}", tmp_path / "run"))


DEPTHS_BY_GOODPUT = ("dcut:depth=goodput@ngram", "dcut:ratios=all,numerator=bonus,depth=goodput@ucb1:reward=throughput")


@pytest.mark.parametrize("spec", DEPTHS_BY_GOODPUT)
def test_a_depth_chosen_by_goodput_is_chosen_again(target, tmp_path, spec):
    depths = {step.depth for step in check(record(target, spec, tmp_path / "run"))}
    assert len(depths) > 1


@pytest.mark.parametrize("name", CALIBRATED)
def test_every_calibrator_learns_again_what_it_learned_live(target, tmp_path, name):
    recorded = record(target, CALIBRATED[name], tmp_path / "run")
    check(recorded)
    before = read_run_file(tmp_path / "run").controller.state["calibrator"]
    assert recorded.engine.controller.state_dict()["calibrator"] != before


def test_everything_registered_is_tested_here():
    assert set(SPECS) == set(BUDGETS)
    assert {*CALIBRATED, "identity"} == set(CALIBRATORS)
    assert set(LIVE_ARMS) == set(ARMS) - {"hedge"}


def test_the_runs_meet_everything_a_step_can_meet(target, tmp_path):
    recorded = record(target, "fixed_depth@exit3", tmp_path / "run")
    check(recorded)
    steps = recorded.engine.tally.steps.table()
    assert recorded.engine.scheduler.num_preemptions > 0
    assert recorded.inside > 0  # ended inside a block
    assert np.count_nonzero(steps["prefill_tokens"]) > 4  # a prompt took several steps
    assert np.any((steps["prefill_tokens"] > 0) & (steps["batch"] > 0))
    assert np.any((steps["prefill_tokens"] > 0) & (steps["batch"] == 0))
    assert steps["num_waiting"].max() > 0
    assert steps["num_accepted"].sum() > 0
    facts = read_run_file(tmp_path / "run").submissions
    assert {one.sampling.temperature for one in facts} == {0.0, 0.8}
    assert facts[1].sampling.seed == 11
    assert [one.before_step for one in facts] == sorted(one.before_step for one in facts)
    assert facts[2].before_step > 0
    assert [request.finish_reason for request in recorded.requests].count("stop") >= 2


def test_sampled_drafts_are_taken_again(target, tmp_path):
    drafters = ("ngram", early_exit(3, "sampled"))
    for number, spec in enumerate(["fixed_depth@ucb1", "dcut_lagged:score=max_prob@exit3"]):
        check(record(target, spec, tmp_path / str(number), drafters=drafters))


def test_a_table_that_cannot_price_prompts_is_no_obstacle_to_plain_steps(target, tmp_path):
    bare = CostTable.from_cells(TABLE.meta, [cell for cell in TABLE.cells if cell.phase != "prefill"])
    steps = check(record(target, "autoregressive", tmp_path / "run", cost=bare))
    assert any(math.isnan(step.table_seconds.total) for step in steps)
    assert parity(tmp_path / "run").kind == "none"


def test_a_controller_that_comes_warm_is_taken_again_from_the_state_it_came_with(target, tmp_path):
    first = record(target, "dcut@thompson_beta", tmp_path / "cold")
    learned = first.engine.controller.state_dict()
    warm = record(
        target, "dcut@thompson_beta", tmp_path / "warm", mutate=lambda e: e.controller.load_state_dict(learned)
    )
    check(warm)
    assert read_run_file(tmp_path / "warm").controller.state != read_run_file(tmp_path / "cold").controller.state


def leave_early(engine):
    """Requests that are cancelled while they run and while they wait, and one that is left behind."""
    prompts = [np.resize([5, 6, 7], 9), np.arange(2, 30), np.resize([9, 8], 7), np.arange(3, 12), np.arange(4, 20)]
    requests = [engine.submit(prompt, SamplingParams(max_tokens=18, ignore_eos=True)) for prompt in prompts]
    for _ in range(4):
        engine.step()
    engine.cancel(requests[0])
    engine.cancel(requests[4])
    engine.step()
    requests.append(engine.submit(prompts[2][::-1], SamplingParams(max_tokens=12)))
    engine.cancel(requests[1])
    for _ in range(8):
        engine.step()
    return requests


def test_requests_that_leave_early_are_taken_again(target, tmp_path):
    recorded = record(target, "dcut@ucb1", tmp_path / "run", drive=leave_early)
    check(recorded)
    ends = [one.end for one in read_run_file(tmp_path / "run").submissions]
    assert ends.count("cancelled") == 3
    assert "unfinished" in ends
    assert any("cancelled: simulated to the length" in note for note in parity(tmp_path / "run").notes)


class Faulty(TargetAcceptor):
    """Finds no law for the request of one slot from an output position on.

    slot, position   where
    keeps            whether drafts were accepted before the place that has none
    """

    def __init__(self, ops, slot, position, keeps):
        super().__init__(ops)
        self.slot, self.position, self.keeps = slot, position, keeps

    def judge(self, logits, rows, pending):
        verdict = super().judge(logits, rows, pending)
        mine = (pending.batch.device_slots == self.slot) & (pending.batch.positions >= self.position)
        accepted = torch.where(mine & (not self.keeps), 0, verdict.num_accepted)
        return replace(verdict, num_accepted=accepted, faulty=torch.where(mine, accepted, verdict.faulty))


@pytest.mark.parametrize(("position", "keeps"), [(0, True), (4, True), (4, False)])
def test_a_request_that_fails_is_taken_again_and_the_others_go_on(target, tmp_path, position, keeps):
    def mutate(engine):
        engine._stepper._verifier._acceptor = Faulty(engine.setup.ops, 1, position, keeps)

    recorded = record(target, "dcut@round_robin", tmp_path / "run", mutate=mutate)
    failed = [one for one in read_run_file(tmp_path / "run").submissions if one.end == "failed"]
    assert failed
    if position:
        assert any(one.last_block is not None for one in failed) or keeps
    check(recorded)
    assert Trace.open(tmp_path / "run").validate().num_requests == sum(bool(r.token_ids) for r in recorded.requests)


class Crafted:
    """Two drafts each, with confidences whose products tie in float32 and do not in float64."""

    def __init__(self, setup, depth):
        self.spec = DrafterSpec("crafted", "ngram", "point_mass", "parallel", ("drawn_prob",), 2)
        self.score_source = "made up"

    def draft(self, batch, depth, stop=None):
        below, second = 1 - 2.0**-24, 1 - 2.0**-23
        scores = torch.tensor([[second, 0.25], [below, below]], dtype=torch.float64)[: len(batch), :depth]
        for column in range(depth):
            batch.history[batch.device_slots, batch.device_lengths + column] = 3
        room = torch.clamp(batch.device_room, max=depth)
        there = torch.arange(depth) < room[:, None]
        return Drafted(room, {"drawn_prob": torch.where(there, scores, 0.0)})

    def catch_up(self, batch):
        pass

    def release(self, slot):
        pass


def two_at_once(engine):
    return [engine.submit(np.arange(2, 9), SamplingParams(max_tokens=9, ignore_eos=True)) for _ in range(2)] + [
        engine.run()
    ]


def in_float32(engine):
    honest = engine.controller.plan

    def plan(draft, cost, *kernel):
        scores = {name: values.to(torch.float32) for name, values in draft.scores.items()}
        return honest(replace(draft, scores=scores), StepCost(cost.seconds.to(torch.float32)))

    engine.controller.plan = plan


def test_a_plan_made_in_float32_is_reported_at_the_first_step_it_changes(target, tmp_path):
    spec, crafted = "fixed_ratio:ratio=.5@crafted", {"drafters": (Crafted,), "drive": two_at_once}
    prices = TABLE.with_draft_costs({"crafted": "ngram"})
    check(record(target, spec, tmp_path / "double", cost=prices, **crafted))
    record(target, spec, tmp_path / "single", cost=prices, mutate=in_float32, **crafted)
    _, difference = take_again(tmp_path / "single")
    assert difference.what == "plan_hash"
    assert difference.lengths == (0, 2)
    report = parity(tmp_path / "single")
    assert not report.equal
    assert report.num_equal == difference.step


def test_a_drafter_that_comes_to_be_pulled_by_another_random_stream_is_reported(target, tmp_path):
    def mutate(engine):
        engine._stepper._rng = np.random.default_rng(1)

    record(target, "dcut@thompson_beta", tmp_path / "run", mutate=mutate)
    assert take_again(tmp_path / "run")[1].what == "arm"


def test_a_controller_put_together_by_hand_is_refused_before_the_run(target, tmp_path):
    def mutate(engine):
        engine.controller.config = None

    with pytest.raises(InputError, match="put together by hand"):
        record(target, "dcut@ucb1", tmp_path / "run", mutate=mutate)
    assert not (tmp_path / "run").exists()


GPU_SPECS = (
    "dcut@ucb1",
    "dcut:ratios=all,numerator=bonus@thompson_beta",
    "dcut_lagged@discounted_thompson_gaussian",
    "dcut@contextual:scope=request",
    "tetris:capacity=9@exp3s",
    "slo_dcut:tpot_seconds=.002@round_robin",
    "confidence_stop@exit3",
    "adaspec@round_robin",
    CALIBRATED["logistic"],
)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("spec", GPU_SPECS)
def test_what_a_gpu_decided_is_decided_again_without_one(model_folder, tmp_path, spec, dtype):
    target = load_model(str(model_folder), dtype=dtype, device="cuda")
    blocks = {"block_size": 16, "num_kv_blocks": 7}  # the least that the kernel takes, and few of them
    check(record(target, spec, tmp_path / "run", **blocks))


def test_drafters_of_the_test_engine_are_those_the_policies_name():
    assert {"ngram", "exit3"} <= set(DRAFTERS)
