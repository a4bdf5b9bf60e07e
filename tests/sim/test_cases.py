"""Faults other speculative-decoding systems have had, as far as they concern the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.core import Order
from specsim.cost.examples import flat_table, linear_table, staircase_table
from specsim.policies.build import build_controller
from specsim.sim import ClosedLoop, EngineConfig, TraceArrivals, simulate
from specsim.telemetry import FINISH_REASONS, Run
from tests.sim.hand_trace import HandRequest, HandTrace, drafter

DECODE_ONLY = EngineConfig(prefill="excluded")


def run(
    trace: HandTrace, policy: str, *, cost=None, engine=DECODE_ONLY, concurrency=1, num_requests=None, **more
) -> Run:
    controller = build_controller(policy, trace.drafters)
    table = cost or flat_table(0.01, drafters={spec.name: 0.001 for spec in trace.drafters})
    workload = more.pop("workload", ClosedLoop(concurrency, num_requests or len(trace)))
    return simulate(trace, table, controller, engine, workload, record_steps=True, **more)


def test_case_9_end_of_sequence_inside_a_block_cuts_the_accepted_drafts():
    # The output ends after the second draft token; the third was accepted by nobody who still listened.
    trace = HandTrace([HandRequest(3, accepted=3, finish_reason="stop")], (drafter(max_depth=3),))
    result = run(trace, "fixed_depth")
    (request,) = result.requests
    assert request["num_output_tokens"] == 3  # the first from the prefill, then [5, EOS]
    assert FINISH_REASONS[request["finish_reason"]] == "stop"
    assert result.steps["num_emitted"].tolist() == [2]
    assert result.steps["num_accepted"].tolist() == [2]
    assert result.totals.num_tested == 2  # what stands after the end met no accept test


@pytest.mark.parametrize(("stop_at", "tokens", "reason"), [(3, 3, "stop"), (6, 5, "length")])
def test_case_10_whichever_of_stop_and_length_comes_first_ends_the_request(stop_at, tokens, reason):
    trace = HandTrace([HandRequest(stop_at, accepted=15, finish_reason="stop")], (drafter(max_depth=15),))
    result = run(trace, "fixed_depth", engine=EngineConfig(prefill="excluded", max_tokens=5))
    (request,) = result.requests
    assert request["num_output_tokens"] == tokens
    assert FINISH_REASONS[request["finish_reason"]] == reason


class Watch:
    """A controller that keeps what its policy is asked and told."""

    def __init__(self, controller) -> None:
        self.inner, self.contexts, self.drafts, self.outcomes = controller, [], [], []

    def choose(self, context):
        self.contexts.append(context)
        return self.inner.choose(context)

    def plan(self, draft, cost):
        self.drafts.append(draft)
        return self.inner.plan(draft, cost)

    def observe(self, outcome):
        self.outcomes.append(outcome)
        self.inner.observe(outcome)

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_case_13_each_request_advances_by_its_own_accepted_drafts():
    accepted = ([9, 4], [9, 1], [9, 0])  # at position 1, where the first step drafts
    trace = HandTrace(
        [HandRequest(50, accepted=[*row, *[0] * 48], num_prompt_tokens=19, arrival_at=0.0) for row in accepted]
    )
    controller = Watch(build_controller("fixed_depth", trace.drafters))
    simulate(trace, flat_table(0.01, drafters={"block": 0.001}), controller, DECODE_ONLY, TraceArrivals())
    assert controller.outcomes[0].num_accepted.tolist() == [4, 1, 0]
    assert [context.mean_context * 3 for context in controller.contexts[:2]] == [20 * 3, 25 + 22 + 21]
    # All at length 20, one output token each; then 25, 22 and 21, request by request.
    assert [(1 + draft.num_decoded).tolist() for draft in controller.drafts[:2]] == [[1, 1, 1], [6, 3, 2]]


def test_case_14_an_idle_drafter_pays_for_the_positions_it_missed():
    class Depths:
        """Depths 3, 0, 0, 3 whatever happens."""

        def __init__(self, controller) -> None:
            self.inner = controller

        def choose(self, context):
            order = self.inner.choose(context)
            return order if context.step in (0, 3) else type(order)(0, 0)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    spec = drafter(max_depth=3, kind="model", passes="per_depth")
    trace = HandTrace([HandRequest(11, accepted=3)], (spec,))
    cost = flat_table(0.01, drafters={"block": 0.001})
    controller = Depths(build_controller("fixed_depth", trace.drafters))
    result = simulate(trace, cost, controller, DECODE_ONLY, ClosedLoop(1, 1), record_steps=True)
    assert result.steps["depth"].tolist() == [3, 0, 0, 3]
    assert result.steps["num_accepted"].tolist() == [3, 0, 0, 3]
    # The first step left the drafter complete up to its end; then two plain steps emitted a token each.
    expected = cost.switch_seconds(spec, 2)
    assert expected > 0
    assert result.steps["switch_seconds"].tolist() == [0, 0, 0, expected]


def test_case_15_a_drafter_never_reaches_past_its_context_limit():
    spec = drafter(max_depth=7, max_context=512)
    trace = HandTrace([HandRequest(10, accepted=0, num_prompt_tokens=508)], (spec,))
    result = run(trace, "fixed_depth")
    # One token from the prefill: the first step starts at length 509.
    assert result.steps["num_drafted"].tolist() == [3, 2, 1, 0, 0, 0, 0, 0, 0]


def test_case_16_the_order_of_requests_changes_no_output():
    # Prompt lengths tell the requests apart; nothing else about a request depends on its slot.
    entries = [
        HandRequest(30, accepted=k, num_prompt_tokens=10 + k, num_drafts=max(k, 1), arrival_at=0.0) for k in (0, 3, 1)
    ]
    emitted = []
    for order in (entries, entries[::-1]):
        result = run(HandTrace(order), "fixed_depth", workload=TraceArrivals())
        columns = (result.requests[name].tolist() for name in ("num_prompt_tokens", "num_output_tokens", "num_steps"))
        emitted.append(sorted(zip(*columns, strict=True)))
    assert emitted[0] == emitted[1]
    assert emitted[0] == [(10, 30, 29), (11, 30, 15), (13, 30, 8)]


def test_case_16_depths_of_0_3_and_1_follow_their_requests_whatever_the_order():
    # A confidence of 1 as deep as a request's K and of 0 beyond: D-cut gives them 0, 3 and 1 drafts.
    def entry(k):
        confidence = np.where(np.arange(4) < k, 1.0, 0.0)
        return HandRequest(30, accepted=4, num_prompt_tokens=10 + k, confidence=confidence, arrival_at=0.0)

    verified = []
    for order in ((0, 3, 1), (1, 3, 0)):
        trace = HandTrace([entry(k) for k in order])
        controller = Watch(build_controller("dcut:ratios=all,numerator=bonus", trace.drafters))
        table = linear_table(0.01, 0.001, drafters={"block": 0.001}, max_depth=4)
        result = simulate(trace, table, controller, DECODE_ONLY, TraceArrivals())
        assert controller.outcomes[0].num_verify.tolist() == list(order)
        columns = (result.requests[name].tolist() for name in ("num_prompt_tokens", "num_output_tokens", "num_steps"))
        verified.append(sorted(zip(*columns, strict=True)))
    assert verified[0] == verified[1] == [(10, 30, 29), (11, 30, 15), (13, 30, 8)]


def test_case_17_a_request_without_a_draft_gets_one_token_a_step():
    trace = HandTrace([HandRequest(4, accepted=4, num_drafts=0)])
    result = run(trace, "dcut")
    assert result.steps["num_emitted"].tolist() == [1, 1, 1]
    assert result.steps["num_verified"].tolist() == [0, 0, 0]


def test_case_17_an_idle_engine_waits_and_goes_on():
    # Between the two requests the batch is empty for a second.
    trace = HandTrace([HandRequest(3, 0, arrival_at=0.0), HandRequest(3, 0, arrival_at=2.0)])
    result = run(trace, "dcut", workload=TraceArrivals())
    assert result.requests["num_output_tokens"].tolist() == [3, 3]
    assert result.steps["batch"].tolist() == [1] * 4
    assert result.requests["first_token_at"].tolist() == [0.0, 2.0]


def test_case_18_columns_beyond_a_shallower_draft_are_never_read():
    class Shrinking:
        def __init__(self, controller) -> None:
            self.inner, self.seen = controller, []

        def choose(self, context):
            order = self.inner.choose(context)
            return type(order)(order.arm, 7 if context.step == 0 else 5)

        def plan(self, draft, cost):
            self.seen.append((draft.scores["drawn_prob"].shape, int(draft.num_drafts[0])))
            return self.inner.plan(draft, cost)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    trace = HandTrace([HandRequest(15, accepted=7)], (drafter(max_depth=7),))
    controller = Shrinking(build_controller("dcut", trace.drafters))
    result = simulate(
        trace, flat_table(0.01, drafters={"block": 0.001}), controller, DECODE_ONLY, ClosedLoop(1, 1), record_steps=True
    )
    assert controller.seen[:2] == [((1, 7), 7), ((1, 5), 5)]
    assert result.steps["num_accepted"].tolist()[:2] == [7, 5]


def test_case_19_always_choosing_depth_0_costs_what_autoregressive_decoding_costs():
    class Never:
        """A policy that could draft four tokens and always chooses none."""

        def __init__(self, controller) -> None:
            self.inner = controller

        def choose(self, context):
            return Order(self.inner.choose(context).arm, 0)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    trace = HandTrace([HandRequest(64, accepted=4) for _ in range(8)])
    table = linear_table(0.01, 0.0001, drafters={"block": 0.005}, max_depth=4)
    never = Never(build_controller("dcut", trace.drafters))
    result = simulate(trace, table, never, DECODE_ONLY, ClosedLoop(4, 8), record_steps=True)
    plain = run(trace, "autoregressive", cost=table, concurrency=4)
    assert result.totals.num_drafted == result.totals.draft_seconds == result.totals.switch_seconds == 0
    assert result.duration == pytest.approx(plain.duration, rel=0.01)
    # By hand: 63 tokens behind the first in each of two waves of four requests, 10.4 ms a step.
    assert result.duration == pytest.approx(2 * 63 * 0.0104, rel=1e-9)


def test_case_20_fixed_depth_is_slower_than_autoregressive_where_verification_is_dear():
    # 10 ms up to 64 tokens and 4 ms per further 64; 64 requests, 4 drafts, each position accepted with one half.
    heights = {64 * n: 0.010 + 0.004 * (n - 1) for n in range(1, 6)}
    table = staircase_table(heights, (64,), drafters={"block": 0.0}, max_depth=4)
    rng = np.random.default_rng(0)
    entries = []
    for _ in range(64):
        accepted = np.cumprod(rng.random((256, 4)) < 0.5, axis=1).sum(axis=1)
        entries.append(HandRequest(256, accepted=accepted.tolist()))
    trace = HandTrace(entries)
    fixed = run(trace, "fixed_depth", cost=table, concurrency=64, num_requests=256)
    plain = run(trace, "autoregressive", cost=table, concurrency=64, num_requests=256)
    full = fixed.steps[fixed.steps["batch"] == 64]
    assert set(full["verify_seconds"].tolist()) == {heights[320]}
    rate = {name: r.totals.num_emitted / (1000 * r.totals.verify_seconds) for name, r in (("f", fixed), ("a", plain))}
    assert rate["a"] == pytest.approx(6.4, rel=0.01)
    assert rate["f"] == pytest.approx(4.77, rel=0.01)


def test_case_39_blocks_of_accepted_tokens_make_the_latency_vary():
    rng = np.random.default_rng(1)
    accepted = np.cumprod(rng.random((200, 4)) < 0.6, axis=1).sum(axis=1)
    result = run(HandTrace([HandRequest(200, accepted=accepted.tolist())]), "fixed_depth")
    assert result.itl.variance() > 0
    # The latency of a token is its share of the step: ten milliseconds of step over one to five tokens.
    assert result.itl.quantile(1.0) == pytest.approx(0.011, rel=0.01)
    assert result.itl.quantile(0.0) == pytest.approx(0.011 / 5, rel=0.01)


def test_case_39_every_request_reserves_its_anchor_and_its_lookahead():
    # A prompt of one token and 100 more slots: 20 requests of 4 + 1 lookahead slots beside their prompts.
    trace = HandTrace([HandRequest(2, accepted=0, num_prompt_tokens=1) for _ in range(40)])
    engine = EngineConfig(prefill="excluded", block_size=1, num_kv_blocks=100 + 20)
    result = run(trace, "fixed_depth", engine=engine, concurrency=40)
    assert result.steps["batch"].max() == 20


def test_case_41_lookahead_takes_nothing_from_the_longest_output():
    for policy in ("autoregressive", "fixed_depth:depth=4", "fixed_depth"):
        trace = HandTrace([HandRequest(50, accepted=2, num_prompt_tokens=4090)], (drafter(max_depth=15),))
        result = run(trace, policy, engine=EngineConfig(prefill="excluded", max_model_len=4096))
        assert result.requests["num_output_tokens"].tolist() == [6]
