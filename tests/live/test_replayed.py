"""Acceptance replay: a real engine takes the steps that the simulator takes on the same trace."""

from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch

from specsim.cost.examples import linear_table
from specsim.errors import InputError
from specsim.kernels.verify import Verdict
from specsim.live.acceptor import Pending, TargetAcceptor
from specsim.live.engine import Engine, LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.profiler_cells import _fed_tokens
from specsim.live.replayed import ClosedLoad, Recording, ReplayedAcceptor, ReplayedDrafter, replayed_drafters
from specsim.live.runner import PassOutput
from specsim.policies.build import build_controller
from specsim.serving import EngineConfig
from specsim.sim.simulate import simulate
from specsim.sim.workload import ClosedLoop, request_order
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace

DEPTH = 5
SEED = 3
BATCH = 4
DRAFTERS = (
    SyntheticDrafter("steady", mean_acceptance_length=3.0, max_depth=DEPTH),
    SyntheticDrafter("daring", mean_acceptance_length=2.0, max_depth=3, overconfidence=2.0),
)
TRACE = SyntheticTrace(
    SyntheticConfig("small", DRAFTERS, num_requests=9, num_prompt_tokens=(3, 12), num_output_tokens=(5, 20), seed=1)
)
CONFIG = EngineConfig(max_num_seqs=BATCH, block_size=4, max_model_len=40, max_num_batched_tokens=30)
DECIDED = (
    "batch", "arm", "depth", "num_drafted", "num_verified", "num_tested", "num_accepted", "num_emitted",
    "prefill_tokens", "num_running", "num_waiting", "plan_hash",
)  # fmt: skip
POLICIES = (
    "autoregressive", "fixed_depth@steady", "fixed_depth:depth=2@daring", "fixed_ratio:ratio=0.5@steady",
    "dcut@steady", "dcut_lagged@steady", "confidence_stop@steady", "fixed_depth@round_robin", "dcut@ucb1",
)  # fmt: skip


@pytest.fixture(scope="module")
def target(make_target):
    return make_target("float32")


def price_list():
    return linear_table(1e-3, 2e-4, drafters=dict.fromkeys(("steady", "daring"), 2e-4))


def engine_on(target, policy, trace=TRACE, config=CONFIG, costs=("free", "free")):
    setup = LiveSetup(target, config, DEPTH, EngineOptions())
    recording = Recording(trace, setup)
    drafters = replayed_drafters(recording, setup, costs)
    controller = build_controller(policy, trace.drafters, live=True)
    acceptor = ReplayedAcceptor(recording, TargetAcceptor(setup.ops))
    options = EngineOptions(seed=SEED)
    return Engine(setup, drafters, controller, price_list(), config, options, acceptor), recording


def run_closed(engine, recording, steps, seed=SEED):
    load = ClosedLoad(engine, recording, request_order(len(recording.trace), seed))
    load.start(BATCH)
    for _ in range(steps):
        assert engine.step()
    rows = engine.tally.steps.table()
    load.stop()
    return rows


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("max_model_len", [40, 17])
def test_a_replayed_run_takes_the_simulators_steps(target, policy, max_model_len):
    """Of every request the same drafts are verified and accepted, in the same order, cut at the same ends."""
    config = replace(CONFIG, max_model_len=max_model_len)
    live = run_closed(*engine_on(target, policy, config=config), steps=40)
    controller = build_controller(policy, TRACE.drafters, live=True)
    workload = ClosedLoop(BATCH, 200)
    run = simulate(TRACE, price_list(), controller, config, workload, seed=SEED, record_steps=True)
    assert len(run.steps) > len(live) >= 40
    for name in DECIDED:
        np.testing.assert_array_equal(live[name], run.steps[name][: len(live)], err_msg=name)
    assert live["num_emitted"].sum() > 60


def test_a_request_emits_the_same_tokens_whatever_the_policy(target):
    outputs = []
    for policy in ("autoregressive", "fixed_depth@steady", "dcut@round_robin"):
        engine, recording = engine_on(target, policy)
        load = ClosedLoad(engine, recording, islice(request_order(len(TRACE), SEED), 5))
        for _ in range(5):
            load._submit()
        engine.observers.remove(load)
        engine.run()
        outputs.append({request.index: request.token_ids for request in engine.ended})
    assert outputs[0] == outputs[1] == outputs[2]
    for index, tokens in outputs[0].items():
        assert len(tokens) == TRACE.requests.num_output_tokens[index]
        assert len(set(tokens)) > 1


def test_accepted_drafts_are_the_requests_tokens_and_rejected_ones_are_not(target):
    engine, recording = engine_on(target, "fixed_depth@steady")
    seen = []

    class Watcher:
        def on_step(self, row, step, emission):
            if emission is not None and step.seen is not None:
                seen.append((step, emission))

        def on_request(self, request):
            pass

    engine.observers.append(Watcher())
    run_closed(engine, recording, 12)
    contradicted = 0
    for step, emission in seen:
        for row in range(len(step.slots)):
            accepted = emission.num_accepted[row]
            if accepted < step.verified[row] and emission.num_emitted[row] > accepted:
                assert step.tokens[row, accepted] != step.blocks[row, accepted]
                contradicted += 1
    assert contradicted > 5


def test_a_stand_in_really_runs_the_first_layers_over_anchors_and_drafts(target):
    free = run_closed(*engine_on(target, "fixed_depth@steady"), steps=8)
    engine, recording = engine_on(target, "fixed_depth@steady", costs=("layers:2", "free"))
    with _fed_tokens(target.model) as fed:
        paid = run_closed(engine, recording, 8)
    for name in DECIDED:
        np.testing.assert_array_equal(paid[name], free[name], err_msg=name)
    drafting = paid[paid["depth"] > 0]
    passes = paid["num_verified"] + paid["batch"] + paid["prefill_tokens"]
    assert sum(fed) == passes.sum() + (drafting["num_drafted"] + drafting["batch"]).sum()


def test_a_stand_in_feeds_each_anchor_and_as_many_tokens_behind_it_as_are_drafted(target):
    setup = LiveSetup(target, CONFIG, DEPTH, EngineOptions())
    drafter = ReplayedDrafter(Recording(TRACE, setup), 0, setup, "layers:1")
    fed = []
    drafter._stand_in.run = lambda rows: (fed.append(rows), PassOutput(torch.zeros(1, 1), rows.slots))[1]
    setup.state.indices[:3] = [4, 0, 8]
    batch = setup.state.batch(np.arange(3), np.array([9, 7, 12]), np.array([5, 2, 0]), np.array([3, 1, 2]))
    drafter.draft(batch, 4)
    assert fed[0].starts.tolist() == [8, 6, 11]
    assert fed[0].counts.tolist() == [5, 3, 1]
    assert fed[0].total == 9


def test_what_a_stand_in_writes_does_not_reach_the_targets_output(target):
    """Its keys lie where the target's will; the target's logits must be those of its own keys."""
    logits = []

    def listen(honest, seen, rows, pending):
        logits.append(seen.clone())
        return honest(seen, rows, pending)

    for costs in (("free", "free"), ("layers:3", "free")):
        engine, recording = engine_on(target, "fixed_depth@steady", costs=costs)
        engine.acceptor.judge = partial(listen, engine.acceptor.judge)
        run_closed(engine, recording, 6)
    half = len(logits) // 2
    for one, other in zip(logits[:half], logits[half:], strict=True):
        assert torch.equal(one, other)


def test_a_fault_of_the_target_is_no_acceptance(target):
    setup = LiveSetup(target, CONFIG, DEPTH, EngineOptions())
    recording = Recording(TRACE, setup)

    class Faulty:
        label = ""

        def judge(self, logits, rows, pending):
            two = torch.zeros(2, dtype=torch.int64)
            return Verdict(two, two, torch.tensor([-1, 0]))

    setup.state.indices[:2] = [1, 2]
    batch = setup.state.batch(np.arange(2), np.array([8, 8]), np.array([5, 5]), np.array([1, 1]))
    drafted = ReplayedDrafter(recording, 0, setup).draft(batch, DEPTH)
    acceptor = ReplayedAcceptor(recording, Faulty())
    tokens = torch.zeros((2, DEPTH), dtype=torch.int64)
    verdict = acceptor.judge(torch.zeros(0), torch.zeros(2), Pending(batch, 0, tokens, drafted.num_drafts, drafted))
    assert verdict.faulty.tolist() == [-1, 0]
    assert verdict.next_token[0] >= 0
    assert verdict.next_token[1] == -1
    accepted = [int(TRACE.blocks(index, 0).num_accepted[1]) for index in (1, 2)]
    assert verdict.num_accepted.tolist() == accepted
    assert acceptor.label == "acceptance replayed from synthetic-small"


def test_drafts_are_those_recorded_at_each_requests_position(target):
    setup = LiveSetup(target, CONFIG, DEPTH, EngineOptions())
    recording = Recording(TRACE, setup)
    drafter = ReplayedDrafter(recording, 0, setup)
    setup.state.indices[:3] = [4, 0, 8]
    positions, room = np.array([3, 1, 2]), np.array([5, 2, 0])
    batch = setup.state.batch(np.arange(3), np.array([9, 9, 9]), room, positions)
    drafted = drafter.draft(batch, 4)
    assert drafted.num_drafts.tolist() == [4, 2, 0]
    for row, index in enumerate((4, 0, 8)):
        wanted = np.zeros(4)
        count = min(4, room[row])
        wanted[:count] = TRACE.blocks(index, 0).scores["drawn_prob"][positions[row], :count]
        assert drafted.scores["drawn_prob"][row].numpy().tobytes() == wanted.tobytes()
    assert set(drafted.scores) == {"drawn_prob", "max_prob"}


@pytest.mark.parametrize("cost", ["layers:0", "layers:9", "layers", "cheap", "layers:5"])
def test_an_unknown_draft_cost_is_refused(target, cost):
    with pytest.raises(InputError, match=r"must be 'free' or 'layers:K' with K from 1 to 4, the layers of 'tiny'"):
        engine_on(target, "dcut@steady", costs=(cost, "free"))


def test_every_drafter_needs_a_cost(target):
    with pytest.raises(InputError, match="1 draft costs for 2 drafters"):
        engine_on(target, "dcut@steady", costs=("free",))


def test_a_trace_that_cannot_be_replayed_is_refused(target):
    setup = LiveSetup(target, CONFIG, DEPTH, EngineOptions())

    class Trajectory(SyntheticTrace):
        kind = "trajectory"

    with pytest.raises(InputError, match="a trajectory trace holds only the blocks its own policy visited"):
        Recording(Trajectory(TRACE.config), setup)

    class Censored(SyntheticTrace):
        def blocks(self, index, drafter):
            blocks = super().blocks(index, drafter)
            return replace(blocks, num_verified=np.minimum(blocks.num_verified, 2)) if index == 6 else blocks

    with pytest.raises(InputError, match="request 6, drafter steady: acceptance was censored"):
        Recording(Censored(TRACE.config), setup)


def test_stopping_a_load_frees_the_setup_for_the_next_engine(target):
    engine, recording = engine_on(target, "dcut@steady")
    run_closed(engine, recording, 10)
    assert engine.setup.pool.used == 0
    assert not engine.scheduler.has_work()
    assert {request.status for request in engine.ended} == {"finished", "cancelled"}
