"""Faults other speculative-decoding systems have had, as far as they concern the live engine."""

import numpy as np
import pytest
import torch

from specsim.cost.examples import flat_table
from specsim.live.drafters.live_ngram import LiveNgram
from specsim.live.sampling import SamplingParams
from specsim.policies.build import build_controller
from specsim.sim import ClosedLoop, simulate
from specsim.sim import EngineConfig as SimulatedConfig
from specsim.telemetry import FINISH_REASONS
from tests.live.engine.engines import build_engine, generate, some_prompts
from tests.live.engine.scripts import Script, ScriptedDrafter, play, scripted_engine
from tests.sim.hand_trace import HandRequest, HandTrace, drafter

EOS, STOP = 39, 42
"""Both end outputs of the target `stopping`."""

AFTER = [33] * 60


def steps(engine, *names):
    """Decode steps of a run: these columns of its telemetry."""
    rows = engine.tally.steps.table()
    return [tuple(int(row[name]) for name in names) for row in rows if row["batch"]]


def simulated(tokens, accepted, **limits):
    """The same request in the simulator."""
    trace = HandTrace(
        [HandRequest(tokens, accepted=accepted, num_prompt_tokens=3, finish_reason="stop")],
        (drafter(max_depth=accepted),),
    )
    cost = flat_table(0.01, drafters={"block": 0.001})
    config = SimulatedConfig(prefill="excluded", **limits)
    controller = build_controller("fixed_depth", trace.drafters)
    return simulate(trace, cost, controller, config, ClosedLoop(1, 1), record_steps=True)


def test_case_9_end_of_sequence_inside_a_block_cuts_the_accepted_drafts_live_as_simulated(stopping):
    engine = scripted_engine(stopping, [Script([4, 5, EOS, 7, *AFTER])], depth=3)
    (request,) = play(engine, [[2, 3, 4]])
    assert (request.token_ids, request.finish_reason) == ([4, 5, EOS], "stop")  # the first is the prompt's
    assert steps(engine, "num_verified", "num_accepted", "num_emitted", "num_tested") == [(3, 2, 2, 2)]
    twin = simulated(3, 3)
    assert int(twin.requests[0]["num_output_tokens"]) == len(request.token_ids)
    assert FINISH_REASONS[twin.requests[0]["finish_reason"]] == "stop"
    assert (twin.steps["num_accepted"].tolist(), twin.steps["num_emitted"].tolist()) == ([2], [2])
    assert (twin.totals.num_tested, engine.tally.finish().num_tested) == (2, 2)


@pytest.mark.parametrize(("stop_at", "count", "reason"), [(2, 3, "stop"), (5, 5, "length"), (4, 5, "stop")])
def test_case_10_whichever_of_stop_and_length_comes_first_ends_the_output_live_as_simulated(
    stopping, stop_at, count, reason
):
    tokens = [10, 11, 12, 20, 21, 22]
    tokens[stop_at] = STOP
    engine = scripted_engine(stopping, [Script([*tokens, *AFTER])], depth=15)
    (request,) = play(engine, [[2, 3, 4]], max_tokens=5)
    assert (request.token_ids, request.finish_reason) == (tokens[:count], reason)
    twin = simulated(stop_at + 1, 15, max_tokens=5)
    assert int(twin.requests[0]["num_output_tokens"]) == count
    assert FINISH_REASONS[twin.requests[0]["finish_reason"]] == reason


def test_case_13_each_request_advances_by_its_own_accepted_drafts(endless):
    """All at length 20, depth 4, accepted (4, 1, 0): lengths become (25, 22, 21), and nobody's rows are another's."""
    outputs = [[*range(base, base + 12), *AFTER] for base in (2, 14, 26)]
    scripts = [Script(tokens, {1: right}) for tokens, right in zip(outputs, (4, 1, 0), strict=True)]
    engine = scripted_engine(endless, scripts, depth=4)
    requests = [engine.submit([5] * 19, SamplingParams(30, seed=seed)) for seed in range(3)]
    engine.step()
    slots = engine.scheduler.slots
    assert slots.length[engine.scheduler.decoding].tolist() == [20, 20, 20]
    engine.step()
    assert slots.length[engine.scheduler.decoding].tolist() == [25, 22, 21]
    assert [request.token_ids for request in requests] == [outputs[0][:6], outputs[1][:3], outputs[2][:2]]
    history = engine.setup.state.history
    for slot, request in enumerate(requests):
        assert history[slot, 19 : slots.length[slot]].tolist() == request.token_ids


class DepthsByRequest:
    """A drafter whose drafts have a length of their own for each request.

    depths  by seed
    """

    score_source = "made up"

    def __init__(self, depths, depth):
        self._inner = LiveNgram(depth)
        self.spec, self.depths = self._inner.spec, depths

    def draft(self, batch, depth, stop=None):
        drafted = self._inner.draft(batch, depth)
        most = torch.tensor([self.depths[seed] for seed in batch.seeds.tolist()])
        drafted.num_drafts.copy_(torch.minimum(drafted.num_drafts, most))
        kept = torch.arange(depth) < most[:, None]
        for scores in drafted.scores.values():
            scores.mul_(kept)
        return drafted

    def catch_up(self, batch):
        pass

    def release(self, slot):
        pass


def test_case_16_drafts_of_0_3_and_1_with_the_requests_reversed_change_no_output(endless):
    prompts = some_prompts(lengths=(6, 8, 12))
    depths = dict(enumerate((0, 3, 1)))

    def outputs(order):
        engine = build_engine(endless, "fixed_depth", [lambda setup, depth: DepthsByRequest(depths, depth)], depth=3)
        requests = {seed: engine.submit(prompts[seed], SamplingParams(16, seed=seed)) for seed in order}
        engine.run()
        assert engine.tally.finish().num_accepted > 0
        return [requests[seed].token_ids for seed in range(3)]

    plain = generate(build_engine(endless, "autoregressive"), prompts, SamplingParams(16))
    assert outputs([0, 1, 2]) == outputs([2, 1, 0]) == [request.token_ids for request in plain]


def test_case_17_an_empty_batch_returns_and_a_request_without_drafts_gets_one_token_a_step(endless):
    engine = build_engine(endless, "autoregressive")
    assert engine.step() is False
    engine.run()
    request = engine.submit([3], SamplingParams(4))
    for count in (1, 2, 3, 4):
        assert engine.step() is True
        assert len(request.token_ids) == count
    assert engine.step() is False
    assert request.finish_reason == "length"


def test_case_17_a_step_in_which_nothing_was_drafted_still_emits_one_token(endless):
    script = Script([*range(2, 30), *AFTER], right=dict.fromkeys(range(60), 0))
    engine = scripted_engine(endless, [script], depth=3)
    engine.drafters[0].draft = lambda batch, depth, stop=None: nothing(engine.drafters[0], batch, depth)
    (request,) = play(engine, [[7, 8]], max_tokens=5)
    assert request.token_ids == list(range(2, 7))


def nothing(drafter: ScriptedDrafter, batch, depth):
    drafted = ScriptedDrafter.draft(drafter, batch, depth)
    return type(drafted)(torch.zeros_like(drafted.num_drafts), {"drawn_prob": drafted.scores["drawn_prob"] * 0.0})


@pytest.mark.parametrize("poison", [-1, 10**9])
@pytest.mark.parametrize("spec", ["fixed_depth", "dcut", "tetris:capacity=7"])
def test_case_18_shallower_drafts_after_deeper_ones_never_read_stale_columns(endless, spec, poison):
    """Depths 7 and 5 in turn; whatever is stale, in the history as in the cache, is poison before each step."""
    prompts = some_prompts()
    expected = [request.token_ids for request in generate(build_engine(endless), prompts, SamplingParams(20))]
    engine = build_engine(endless, f"{spec}@round_robin", ["ngram", "exit2"], depth=7, max_num_seqs=3, num_kv_blocks=30)
    turns = iter([7, 5] * 200)
    choose = engine.controller.choose
    engine.controller.choose = lambda context: shallower(choose(context), next(turns))
    requests = [engine.submit(prompt, SamplingParams(20)) for prompt in prompts]
    poison_stale(engine, poison)
    while engine.step():
        poison_stale(engine, poison)
    assert [request.token_ids for request in requests] == expected


def shallower(order, depth):
    return type(order)(order.arm, min(order.depth, depth))


def poison_stale(engine, poison):
    """Spoil every token, key and value that no running request has committed."""
    setup, slots = engine.setup, engine.scheduler.slots
    committed = torch.zeros(setup.kv.keys[0].shape[:2], dtype=torch.bool)
    for slot, request in enumerate(slots.requests):
        length = int(slots.length[slot]) if request is not None else 0
        setup.state.history[slot, length:] = poison
        prefilled = slot in engine.scheduler.prefilling
        cached = 0 if request is None else slots.computed[slot] if prefilled else length - 1
        for place in range(cached):
            committed[setup.pool.table[slot, place // setup.block_size], place % setup.block_size] = True
    for pool in (*setup.kv.keys, *setup.kv.values):
        pool[~committed] = torch.nan


def test_released_slots_are_never_read(endless):
    """CASES 18, of slots: temperature, seeds and filters of who has left are poison, and nobody notices."""
    prompts = some_prompts()
    params = [SamplingParams(5 + 3 * seed, 0.8, top_k=20 * (seed % 2), seed=seed) for seed in range(len(prompts))]
    expected = [request.token_ids for request in generate(build_engine(endless), prompts, params)]
    engine = build_engine(endless, "fixed_depth@round_robin", ["ngram", "exit2"], max_num_seqs=3)
    requests = [engine.submit(prompt, own) for prompt, own in zip(prompts, params, strict=True)]
    state = engine.setup.state
    more = True
    while more:
        for slot in engine.scheduler.slots.free:
            state.temperature[slot], state.top_p[slot] = torch.nan, torch.nan
            state.seeds[slot], state.top_k[slot] = -1, -1
            state.history[slot] = -1
        more = engine.step()
    assert [request.token_ids for request in requests] == expected


def test_an_order_deeper_than_the_room_left_drafts_up_to_the_context_s_end(endless):
    """CASES 15, of the target's own limit: no index past it, and the output goes to its last token."""
    engine = build_engine(endless, "fixed_depth@exit2", ["exit2"], depth=7, max_model_len=24)
    rooms = []
    draft = engine.drafters[0].draft
    engine.drafters[0].draft = lambda batch, *rest: rooms.append(batch.room.tolist()) or draft(batch, *rest)
    plain = build_engine(endless, max_model_len=24)
    requests = [generate(one, [[5, 6, 7, 8]] * 2, SamplingParams(99)) for one in (engine, plain)]
    assert [len(request.token_ids) for request in requests[0]] == [20, 20]
    assert [request.token_ids for request in requests[0]] == [request.token_ids for request in requests[1]]
    assert min(min(room) for room in rooms) < 7
    assert np.array(rooms[-1]).min() >= 0
