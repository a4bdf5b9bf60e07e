"""Continuous batching: chunked prefill, admission, preemption by recompute."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.cost.examples import linear_table
from specsim.errors import InputError
from specsim.policies.build import build_controller
from specsim.serving.scheduler import Scheduler
from specsim.serving.slots import Request
from specsim.sim import ClosedLoop, EngineConfig, Poisson, TraceArrivals, simulate
from tests.sim.hand_trace import HandRequest, HandTrace

COST = linear_table(0.01, 0.0001, drafters={"block": 0.001}, max_depth=4)


def request(sequence: int, prompt: int, limit: int = 8) -> Request:
    return Request(sequence, sequence, sequence, "all", prompt, limit, False, 0.0)


def run(trace, policy="fixed_depth", engine=None, workload=None, **more):
    controller = build_controller(policy, trace.drafters)
    workload = workload or ClosedLoop(len(trace), len(trace))
    return simulate(trace, COST, controller, engine or EngineConfig(), workload, record_steps=True, **more)


def test_a_long_prompt_is_prefilled_in_chunks_of_the_token_budget():
    scheduler = Scheduler(EngineConfig(max_num_batched_tokens=10), num_slots=2, lookahead=4)
    scheduler.submit(request(0, prompt=25))
    sizes = []
    for _ in range(3):
        ((slot, size),) = scheduler.schedule(0.0)
        sizes.append(size)
        scheduler.slots.computed[slot] += size
    assert sizes == [10, 10, 5]


def test_a_second_prompt_shares_what_the_first_left_of_the_budget():
    scheduler = Scheduler(EngineConfig(max_num_batched_tokens=10), num_slots=2, lookahead=4)
    scheduler.submit(request(0, prompt=7))
    scheduler.submit(request(1, prompt=7))
    assert [size for _, size in scheduler.schedule(0.0)] == [7, 3]


def test_decodes_take_their_anchor_and_lookahead_from_the_budget_first():
    scheduler = Scheduler(EngineConfig(max_num_batched_tokens=10), num_slots=2, lookahead=4)
    scheduler.submit(request(0, prompt=5))
    ((slot, size),) = scheduler.schedule(0.0)
    scheduler.slots.computed[slot] += size
    scheduler.slots.emitted[slot] += 1
    scheduler.slots.length[slot] += 1
    scheduler.finish_prefill(slot)
    scheduler.submit(request(1, prompt=50))
    assert [size for _, size in scheduler.schedule(0.0)] == [5]


def test_the_first_token_comes_with_the_end_of_the_prefill_and_is_not_a_decode_step():
    trace = HandTrace([HandRequest(3, accepted=0, num_prompt_tokens=100)])
    result = run(trace, "autoregressive", EngineConfig(max_num_batched_tokens=60))
    assert result.steps["prefill_tokens"].tolist() == [60, 40, 0, 0]
    assert result.steps["batch"].tolist() == [0, 0, 1, 1]
    # Two chunks alone pay a plain step at the table's smallest batch each.
    plain = COST.phases(None, 1, 0, 0, 100.0).total
    expected = 2 * plain + COST.prefill_seconds(60, 0.0) + COST.prefill_seconds(40, 60.0)
    assert result.requests["first_token_at"][0] == pytest.approx(expected)
    assert result.totals.num_first == 1
    assert result.totals.num_emitted == 2


def test_preemption_recomputes_and_loses_no_token():
    # Room for both prompts but not for both outputs: the later request is thrown out and comes back.
    trace = HandTrace([HandRequest(40, accepted=1, num_prompt_tokens=8, arrival_at=0.0) for _ in range(2)])
    engine = EngineConfig(block_size=4, num_kv_blocks=16)
    result = run(trace, engine=engine, workload=TraceArrivals())
    assert result.totals.num_preemptions > 0
    assert result.requests["num_output_tokens"].tolist() == [40, 40]
    assert result.requests["num_preemptions"].tolist()[0] == 0  # the one admitted first is never the victim
    assert result.totals.kv_blocks_peak <= 16
    # What the victim had emitted is computed again, beside both prompts.
    assert result.steps["prefill_tokens"].sum() > 16
    assert result.totals.num_emitted + result.totals.num_first == 80


def decode(scheduler, slot, tokens):
    """Finish a prefill and let its request emit."""
    scheduler.slots.computed[slot] = scheduler.slots.to_compute[slot]
    scheduler.slots.emitted[slot] += tokens
    scheduler.slots.length[slot] += tokens
    scheduler.finish_prefill(slot)


def test_who_was_preempted_comes_back_before_who_never_ran_and_not_in_the_same_step():
    # Chunks of at most 6 tokens, so that a part of the victim's prompt would fit at once.
    scheduler = Scheduler(EngineConfig(block_size=1, num_kv_blocks=20, max_num_batched_tokens=6), 3, lookahead=0)
    for sequence in range(2):
        scheduler.submit(request(sequence, prompt=5))
        decode(scheduler, scheduler.schedule(0.0)[0][0], 5)
    scheduler.submit(request(2, prompt=1))
    assert scheduler.schedule(1.0) == []  # ten tokens each: the blocks are full, so the third waits
    scheduler.slots.length[scheduler.decoding] += 1
    assert scheduler.schedule(2.0) == []  # preempts, and so admits nobody though nine blocks are free
    assert [waiting.sequence for waiting in scheduler.waiting] == [1, 2]
    assert [scheduler.slots.request(slot).sequence for slot in scheduler.running] == [0]
    assert [size for _, size in scheduler.schedule(3.0)] == [5]


def test_two_prompts_that_block_each_other_do_not_stall():
    # Chunks of 4 tokens: both prompts start, and each would need the blocks that the other holds.
    trace = HandTrace([HandRequest(2, accepted=0, num_prompt_tokens=24) for _ in range(2)])
    engine = EngineConfig(block_size=4, num_kv_blocks=8, max_num_batched_tokens=10)
    result = run(trace, engine=engine)
    assert sorted(result.requests["num_output_tokens"].tolist()) == [2, 2]


def test_a_request_that_could_never_fit_is_refused_by_name():
    trace = HandTrace([HandRequest(40, accepted=0, num_prompt_tokens=100)])
    with pytest.raises(InputError, match=r"request 100 needs 36 KV blocks of 4 tokens .* num_kv_blocks is 8"):
        run(trace, engine=EngineConfig(block_size=4, num_kv_blocks=8))


def test_a_budget_too_small_for_the_decodes_is_refused():
    trace = HandTrace([HandRequest(4, accepted=0) for _ in range(4)])
    with pytest.raises(InputError, match=r"max_num_batched_tokens is 19, but 4 requests of 1 \+ 4 tokens need 20"):
        run(trace, engine=EngineConfig(max_num_batched_tokens=19))


def test_a_prompt_without_room_is_refused():
    trace = HandTrace([HandRequest(4, accepted=0, num_prompt_tokens=64)])
    with pytest.raises(InputError, match="prompt of 64 tokens leaves no room under max_model_len 64"):
        run(trace, engine=EngineConfig(max_model_len=64))


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30), st.integers(0, 4)), min_size=1, max_size=8),
    blocks=st.integers(20, 60),
    budget=st.integers(40, 80),
    prefill=st.sampled_from(["charged", "excluded"]),
    rate=st.sampled_from([None, 5.0, 500.0]),
)
def test_every_request_gets_its_tokens_whatever_the_pressure(shapes, blocks, budget, prefill, rate):
    trace = HandTrace([HandRequest(out, accepted=k, num_prompt_tokens=prompt) for prompt, out, k in shapes])
    engine = EngineConfig(
        max_num_seqs=8, block_size=4, num_kv_blocks=blocks, max_num_batched_tokens=budget, prefill=prefill
    )
    count = 2 * len(shapes)
    workload = ClosedLoop(len(shapes), count) if rate is None else Poisson(rate, count)
    result = run(trace, engine=engine, workload=workload)
    assert len(result.requests) >= count
    want = trace.requests.num_output_tokens[result.requests["index"]]
    assert result.requests["num_output_tokens"].tolist() == want.tolist()
    assert result.totals.kv_blocks_peak <= blocks
    for earlier, later in (("arrived_at", "admitted_at"), ("admitted_at", "first_token_at")):
        assert (result.requests[earlier] <= result.requests[later]).all()
    assert (result.requests["first_token_at"] <= result.requests["finished_at"]).all()
    if rate is not None:
        emitted = result.totals.num_emitted + result.totals.num_first
        assert emitted >= want.sum()
        assert result.totals.num_emitted == result.steps["num_emitted"].sum()


def test_the_pool_is_empty_when_all_have_left():
    scheduler = Scheduler(EngineConfig(block_size=4, num_kv_blocks=40), num_slots=4, lookahead=3)
    for sequence in range(4):
        scheduler.submit(request(sequence, prompt=9))
    for slot, size in scheduler.schedule(0.0):
        scheduler.slots.computed[slot] += size
        scheduler.finish_prefill(slot)
    assert scheduler.pool.used > 0
    for slot in scheduler.running.copy():
        scheduler.release(slot)
    assert scheduler.pool.used == 0
    assert scheduler.total_length == 0
    assert scheduler.pool.held.tolist() == [0] * 4
    assert np.array_equal(scheduler.decoding, [])
