"""Whole runs: order of simultaneous events, determinism, exact replay, arrivals, replicas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from specsim.cost.examples import flat_table, linear_table
from specsim.errors import InputError
from specsim.policies.build import build_controller
from specsim.sim import ClosedLoop, EngineConfig, Gamma, Poisson, TraceArrivals, simulate
from specsim.sim.workload import request_order
from tests.sim.hand_trace import HandRequest, HandTrace, drafter

COST = linear_table(0.008, 0.0001, drafters={"block": 0.001, "other": 0.002}, max_depth=4)
DECODE_ONLY = EngineConfig(prefill="excluded")


def random_trace(requests=12, length=60, seed=0, arms=1):
    rng = np.random.default_rng(seed)
    names = ("block", "other")[:arms]
    entries = []
    for index in range(requests):
        accepted = [np.cumprod(rng.random((length, 4)) < 0.7, axis=1).sum(axis=1).tolist() for _ in names]
        confidence = rng.random((length, 4))
        entries.append(HandRequest(length, accepted if arms > 1 else accepted[0], 10 + index, confidence=confidence))
    return HandTrace(entries, tuple(drafter(name) for name in names))


def run(trace, policy="dcut", engine=DECODE_ONLY, workload=None, **more):
    controller = build_controller(policy, trace.drafters)
    return simulate(trace, COST, controller, engine, workload or ClosedLoop(4, 20), record_steps=True, **more)


def test_the_same_controller_on_the_same_trace_takes_identical_steps():
    trace = random_trace(arms=2)
    for policy in ("dcut@block", "dcut@ucb1", "dcut@thompson_beta", "fixed_depth@round_robin"):
        first, second = run(trace, policy, seed=3), run(trace, policy, seed=3)
        assert first.steps.tobytes() == second.steps.tobytes()
        assert first.requests.tobytes() == second.requests.tobytes()


def test_another_process_with_another_hash_seed_takes_identical_steps():
    code = (
        "from tests.sim.test_simulate import *; import zlib;"
        "print(zlib.crc32(run(random_trace(arms=2), 'dcut@thompson_beta', seed=5).steps.tobytes()))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": hash_seed}
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(printed) == 1


def test_another_seed_takes_other_steps():
    trace = random_trace()
    assert run(trace, seed=0).steps.tobytes() != run(trace, seed=1).steps.tobytes()


def test_every_policy_meets_the_same_requests_in_the_same_order():
    trace = random_trace()
    order = [run(trace, policy, workload=ClosedLoop(1, 12), seed=9).requests["index"].tolist() for policy in
             ("autoregressive", "fixed_depth", "dcut")]  # fmt: skip
    assert order[0] == order[1] == order[2]
    generator = request_order(12, seed=9)
    assert order[0] == [next(generator) for _ in range(12)]


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_replaying_a_depth_equals_counting_by_hand_on_the_trace(depth):
    trace = random_trace(requests=6)
    result = run(trace, f"fixed_depth:depth={depth}", workload=ClosedLoop(1, 6))
    steps = emitted = 0
    for index in range(6):
        accepted = trace.blocks(index, 0).num_accepted
        position = 1  # the prefill yields the first token
        while position < 60:
            advance = min(min(int(accepted[position]), depth) + 1, 60 - position)
            steps, emitted, position = steps + 1, emitted + advance, position + advance
    assert result.totals.num_steps == steps
    assert result.totals.num_emitted == emitted


def test_an_arrival_at_the_instant_a_step_ends_joins_the_next_step():
    step = flat_table(0.5, drafters={"block": 0.0})
    trace = HandTrace([HandRequest(6, 0, arrival_at=0.0), HandRequest(6, 0, arrival_at=1.0)])
    controller = build_controller("autoregressive", trace.drafters)
    result = simulate(trace, step, controller, DECODE_ONLY, TraceArrivals(), record_steps=True)
    # The second step ends at 1.0, exactly when the second request arrives.
    assert result.steps["started_at"].tolist()[:4] == [0.0, 0.5, 1.0, 1.5]
    assert result.steps["batch"].tolist()[:4] == [1, 1, 2, 2]


def test_an_arrival_scheduled_after_the_step_it_coincides_with_still_comes_first():
    # The step that ends at 1.0 is under way when the second arrival, at 0.75, schedules the third, at 1.0.
    arrivals = (0.0, 0.75, 1.0)
    trace = HandTrace([HandRequest(6, 0, arrival_at=at) for at in arrivals])
    controller = build_controller("autoregressive", trace.drafters)
    result = simulate(trace, flat_table(0.5), controller, DECODE_ONLY, TraceArrivals(), record_steps=True)
    assert result.steps["started_at"].tolist()[:3] == [0.0, 0.5, 1.0]
    assert result.steps["batch"].tolist()[:3] == [1, 1, 3]


def test_replicas_that_end_at_one_instant_commit_lowest_first():
    # Half a second a token: replica 1 decodes two requests, replica 0 one (its other needs only its prefill). The
    # step of replica 1 that ends at 1.0 was scheduled first, and still replica 0 commits first.
    outputs = (9, 9, 1, 9)
    trace = HandTrace([HandRequest(length, 0, arrival_at=0.0) for length in outputs])
    controller = build_controller("autoregressive", trace.drafters)
    result = simulate(
        trace, linear_table(0.0, 0.5), controller, DECODE_ONLY, TraceArrivals(), num_replicas=2, record_steps=True
    )
    ends = result.steps["started_at"] + result.steps["verify_seconds"]
    assert ends[:3].tolist() == [0.5, 1.0, 1.0]
    assert result.steps["replica"][:3].tolist() == [0, 0, 1]


def test_a_prompt_computed_here_is_computed_by_the_drafter_too():
    spec = drafter(kind="model", passes="per_depth")
    trace = HandTrace([HandRequest(3, 0, num_prompt_tokens=50)], (spec,))
    result = run(trace, "fixed_depth", EngineConfig(), ClosedLoop(1, 1))
    assert result.steps["switch_seconds"].tolist() == [0.0, COST.switch_seconds(spec, 51), 0.0]
    excluded = run(trace, "fixed_depth", DECODE_ONLY, ClosedLoop(1, 1))
    assert excluded.totals.switch_seconds == 0


def test_a_poisson_stream_has_its_rate_and_a_gamma_stream_its_burstiness():
    for workload in (Poisson(50.0, 40_000), Gamma(50.0, 40_000, burstiness=0.25)):
        gaps = np.diff(workload.arrivals(seed=1), prepend=0.0)
        assert gaps.mean() == pytest.approx(1 / 50, rel=0.03)
        # The squared coefficient of variation of a Gamma law is the inverse of its shape.
        assert gaps.var() / gaps.mean() ** 2 == pytest.approx(1 / workload.burstiness, rel=0.08)


def test_time_scale_stretches_recorded_arrivals():
    trace = HandTrace([HandRequest(2, 0, arrival_at=at) for at in (7.0, 3.0, 5.0)])
    result = run(trace, "autoregressive", workload=TraceArrivals(time_scale=0.5))
    assert sorted(result.requests["arrived_at"].tolist()) == [0.0, 1.0, 2.0]
    assert result.requests["index"].tolist() == [1, 2, 0]


def test_least_loaded_sends_work_past_a_busy_replica():
    # Long and short requests alternate: round robin gives all long ones to the first replica.
    trace = HandTrace([HandRequest(200 if index % 2 == 0 else 2, 0, arrival_at=0.011 * index) for index in range(12)])
    waits = {}
    for router in ("round_robin", "least_loaded"):
        engine = EngineConfig(prefill="excluded", max_num_seqs=1)
        result = run(trace, "autoregressive", engine, TraceArrivals(), num_replicas=2, router=router)
        waits[router] = (result.requests["admitted_at"] - result.requests["arrived_at"]).mean()
    assert waits["least_loaded"] < waits["round_robin"]


def test_replicas_learn_apart():
    class Counting:
        def __init__(self, inner) -> None:
            self.inner, self.observed = inner, 0

        def observe(self, outcome):
            self.observed += 1
            self.inner.observe(outcome)

        def __getattr__(self, name):
            if name.startswith("__"):  # deepcopy asks before there is an `inner`
                raise AttributeError(name)
            return getattr(self.inner, name)

    trace = random_trace(arms=2)
    controller = Counting(build_controller("dcut@ucb1", trace.drafters))
    result = simulate(trace, COST, controller, DECODE_ONLY, ClosedLoop(4, 20), num_replicas=2, record_steps=True)
    assert controller.observed == (result.steps["replica"] == 0).sum() > 0
    assert (result.steps["replica"] == 1).any()


def test_the_clairvoyant_bound_is_never_slower_than_a_policy():
    trace = random_trace()
    duration = {policy: run(trace, policy, workload=ClosedLoop(4, 48)).duration for policy in
                ("clairvoyant", "dcut", "fixed_depth", "autoregressive")}  # fmt: skip
    assert duration["clairvoyant"] == min(duration.values())


def test_notes_of_one_run_do_not_stick_to_the_table():
    trace = random_trace()
    table = linear_table(0.008, 0.0001, drafters={"else": 0.001}, max_depth=4)
    priced = table.with_draft_costs({"block": "else"})
    result = simulate(trace, priced, build_controller("dcut", trace.drafters), DECODE_ONLY, ClosedLoop(2, 4))
    assert any("priced as else" in note for note in result.notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_replicas": 0}, "num_replicas is 0"),
        ({"num_replicas": 10**9}, "num_replicas is 1000000000; it must be from 1 to 4,096"),
        ({"workload": Poisson(1e-300, 5)}, "the last request would arrive at .*e.300 s; allowed: until 1e.09 s"),
        ({"router": "random"}, "router is 'random'; allowed: round_robin, least_loaded"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(InputError, match=message):
        run(random_trace(), **change)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ClosedLoop(0, 5), "concurrency is 0"),
        (lambda: ClosedLoop(1, 0), "num_requests is 0"),
        (lambda: ClosedLoop(10**23, 5), "concurrency is 1.*; it must be from 1 to 2,147,483,647"),
        (lambda: ClosedLoop(1, 2**63), "num_requests is 9223372036854775808; it must be from 1 to"),
        (lambda: Poisson(1.0, 10**23), "num_requests is 1.*; it must be from 1 to"),
        (lambda: Poisson(-1.0, 5), "rate is -1.0"),
        (lambda: Poisson(float("nan"), 5), "rate is nan"),
        (lambda: Gamma(1.0, 5, 0.0), "burstiness is 0.0"),
        (lambda: TraceArrivals(0.0), "time_scale is 0.0"),
        (lambda: EngineConfig(max_num_seqs=0), "max_num_seqs is 0"),
        (lambda: EngineConfig(num_kv_blocks=0), "num_kv_blocks is 0"),
        (lambda: EngineConfig(prefill="free"), "prefill is 'free'; allowed: charged, excluded"),  # type: ignore
    ],
)
def test_bad_configuration_is_named(build, message):
    with pytest.raises(InputError, match=message):
        build()


def test_a_trajectory_trace_is_not_replayed_under_another_policy():
    trace = random_trace()
    trace.kind = "trajectory"
    with pytest.raises(InputError, match="a trajectory trace holds only the blocks its own policy visited"):
        run(trace)


def test_acceptance_censored_inside_the_output_is_not_replayed():
    trace = random_trace()
    trace.censored_at = 7
    with pytest.raises(InputError, match=r"request \d+, drafter block: acceptance was censored inside the output"):
        run(trace)


def test_rate_times_burstiness_may_be_less_than_any_number():
    assert (Gamma(1e-200, 5, 1e-200).arrivals(seed=0) == 0.0).all()  # a law that hardly ever leaves 0


def test_arrivals_that_a_clock_cannot_tell_apart_from_steps_are_refused():
    with pytest.raises(InputError, match=r"the last request would arrive at 1e\+300 s; allowed: until 1e\+09 s"):
        TraceArrivals(1e300).schedule(np.array([0.0, 1.0]))


def test_arrivals_a_trace_does_not_have_are_not_made_up():
    with pytest.raises(InputError, match="column arrival_at: 12 requests have no arrival"):
        run(random_trace(), workload=TraceArrivals())


def test_a_controller_of_other_drafters_is_refused():
    controller = build_controller("dcut", (drafter("another"),))
    with pytest.raises(InputError, match="built for other drafters"):
        simulate(random_trace(), COST, controller, DECODE_ONLY, ClosedLoop(1, 1))
