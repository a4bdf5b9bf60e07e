"""What is launched ahead of a step changes nothing but when it is launched.

On a CPU launching is computing, so that everything but the gain is really there.
"""

from functools import partial

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from specsim.core import Order
from specsim.live.ahead import Ahead
from specsim.live.drafters.live_ngram import LiveNgram
from specsim.live.drafters.ngram_batch import draft_by_lookup
from specsim.live.engine_options import EngineOptions
from specsim.live.phase_clock import PhaseClock
from specsim.live.readback import Readback
from specsim.live.sampling import SamplingParams
from specsim.serving.foresight import SAME_ORDERS
from specsim.telemetry import STEP_DTYPE
from tests.live.engine.engines import build_engine, check_all_is_given_back, some_prompts
from tests.live.parity_runs import record, take_again

PROMPTS = some_prompts(lengths=(5, 17, 1, 9, 12, 3))
LENGTHS = (30, 18, 25, 28, 9, 22)
DECIDED = [name for name in STEP_DTYPE.names if not name.endswith("_seconds") and name != "started_at"]
STEADY = ("autoregressive", "fixed_depth@exit2", "dcut@exit2", "dcut@ngram")
TIGHT = {"max_num_seqs": 3, "num_kv_blocks": 24}


def lookup(setup, depth):
    """Prompt lookup as a GPU does it, which reads no length on the host; it drafts more for some than for others."""
    drafter = LiveNgram(depth)
    drafter._look_up = partial(draft_by_lookup, max_depth=depth)
    drafter._reads_lengths = False
    return drafter


def launching(engine):
    """The engine, launching ahead as it would on a GPU."""
    engine._stepper.ahead.enabled = True
    return engine


def play(target, spec, ahead=True, params=None, arms=("exit2", lookup), **limits):
    """The engine, its requests, and who of them came late or was cancelled, after a run."""
    engine = build_engine(target, spec, arms, **limits)
    engine._stepper.ahead.enabled = ahead
    params = params or [SamplingParams(length) for length in LENGTHS]
    requests = [engine.submit(prompt, own) for prompt, own in zip(PROMPTS[:4], params, strict=False)]
    for number in range(2000):
        if number == 9:
            requests.append(engine.submit(PROMPTS[4], params[4]))
        if number == 13:
            engine.cancel(requests[0])
            requests.append(engine.submit(PROMPTS[5], params[5]))
        if not engine.step(settled=False) and number > 13:
            break
    engine.settle()
    check_all_is_given_back(engine)
    return engine, requests


def said(engine, requests):
    """Everything a run decided and brought."""
    steps = engine.tally.steps.table()[DECIDED].tolist()
    return steps, [(request.token_ids, request.finish_reason, request.text) for request in requests]


SAMPLED = [SamplingParams(length, temperature=0.8, seed=length, top_k=7 * (length % 2)) for length in LENGTHS]


@pytest.mark.parametrize("params", [None, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("limits", [{}, TIGHT, {"num_kv_blocks": 200, "max_num_batched_tokens": 26}], ids=str)
@pytest.mark.parametrize("spec", [*STEADY, "dcut@ucb1", "adaspec@exit2"])
def test_outputs_and_decisions_are_the_same(endless, spec, limits, params):
    (engine, requests), plain = (play(endless, spec, ahead, params, **limits) for ahead in (True, False))
    assert said(engine, requests) == said(*plain)
    ahead = engine._stepper.ahead
    if spec in STEADY:
        assert ahead.num_taken > 3
        # One comes and one is cancelled while requests are plainly decoded; of drafts only the last is for nobody.
        assert ahead.num_dropped <= (2 if spec == "autoregressive" else 1)
    assert plain[0]._stepper.ahead.num_taken == plain[0]._stepper.ahead.num_dropped == 0


@pytest.mark.parametrize("spec", STEADY)
def test_who_ends_by_surprise_is_not_missed(stopping, spec):
    """A stop token, or a stop text inside a block: its request was in what was launched."""
    params = [SamplingParams(40, stop=("a",) if turn % 2 else ()) for turn in range(6)]
    (engine, requests), plain = (play(stopping, spec, ahead, params, max_num_seqs=3) for ahead in (True, False))
    assert said(engine, requests) == said(*plain)
    assert sum(request.finish_reason == "stop" for request in requests) >= 3
    assert engine._stepper.ahead.num_taken > 3
    if spec == "autoregressive":
        assert engine._stepper.ahead.num_dropped  # a pass that held one request too many


@pytest.mark.parametrize("spec", ["autoregressive", "fixed_depth@exit2"])
def test_a_law_that_is_none_ends_its_request_alone(endless, spec):
    outputs = []
    for ahead in (True, False):
        engine = build_engine(endless, spec, ["exit2"])
        engine._stepper.ahead.enabled = ahead
        run, steps = engine.setup.runner.run, []

        def broken(*arguments, run=run, steps=steps):
            out = run(*arguments)
            steps.append(len(out.logits))
            if len(steps) == 9:
                out.logits[0] = float("nan")
            return out

        engine.setup.runner.run = broken
        requests = [engine.submit(prompt, SamplingParams(40)) for prompt in PROMPTS[:3]]
        engine.run()
        outputs.append([(request.status, request.token_ids) for request in requests])
        check_all_is_given_back(engine)
    assert outputs[0] == outputs[1]
    assert sorted(status for status, _ in outputs[0]) == ["failed", "finished", "finished"]


@pytest.mark.parametrize("spec", [*STEADY, "dcut@contextual:scope=request", "dcut@ucb1"])
def test_a_run_that_launched_ahead_is_taken_again(make_target, tmp_path, monkeypatch, spec):
    monkeypatch.setattr("specsim.serving.foresight.UNKNOWN_GAIN", 1.0)  # the run is short and full of them
    target = make_target("float64", eos_token_id=[39, 42])
    arms = ("exit2", lookup)
    taken = []

    def mutate(engine):
        taken.append(launching(engine)._stepper.ahead)

    recorded = record(target, spec, tmp_path / "run", drafters=arms, mutate=mutate, num_kv_blocks=30)
    steps, difference = take_again(tmp_path / "run")
    assert difference is None, difference
    assert len(steps) == recorded.engine.tally.totals.num_steps
    assert taken[0].num_taken or spec not in STEADY


class Launches(TorchDispatchMode):
    """Operations that compute, and what else is noted between them."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func.is_view and func.overloadpacket is not torch.ops.aten.detach:
            self.seen.append("op")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("spec", STEADY)
def test_the_host_reads_a_step_when_the_next_has_begun_and_launches_nothing_while_it_commits(
    endless, spec, monkeypatch
):
    """Between the read and the step's end no operation runs: whatever the device does then was launched before."""
    engine = launching(build_engine(endless, spec, [lookup if spec == "dcut@ngram" else "exit2"]))
    for prompt in PROMPTS[:3]:
        engine.submit(prompt, SamplingParams(60))
    for _ in range(9):
        engine.step(settled=False)
    launches = Launches()
    fetch, run = Readback.fetch, engine.setup.runner.run
    monkeypatch.setattr(Readback, "fetch", lambda own: (launches.seen.append("read"), fetch(own))[1])
    draft = engine.drafters[0].draft
    engine.drafters[0].draft = lambda *given: (launches.seen.append("drafted"), draft(*given))[1]
    engine.setup.runner.run = lambda *given: (launches.seen.append("pass"), run(*given))[1]
    plain = spec == "autoregressive"
    for _ in range(4):
        launches.seen.clear()
        with launches:
            engine.step(settled=False)
        marks = [seen for seen in launches.seen if seen != "op"]
        assert marks == (["pass", "read"] if plain else ["pass", "drafted", "read"])
        behind = launches.seen[launches.seen.index("read") + 1 :]
        assert not behind, behind


def test_a_step_that_fails_behind_what_was_launched_is_taken_again(endless):
    engine = launching(build_engine(endless, "autoregressive"))
    (expected,) = [r.token_ids for r in run_all(build_engine(endless, "autoregressive"))]
    request = engine.submit(PROMPTS[0], SamplingParams(20))
    for _ in range(4):
        engine.step()
    commit = engine._stepper._committer.commit

    def failing(*arguments):
        engine._stepper._committer.commit = commit
        raise MemoryError

    engine._stepper._committer.commit = failing
    with pytest.raises(MemoryError):
        engine.step()
    engine.run()
    assert request.token_ids == expected


def run_all(engine):
    requests = [engine.submit(PROMPTS[0], SamplingParams(20))]
    engine.run()
    return requests


def test_passes_are_not_launched_ahead_where_they_would_too_often_come_to_nothing(endless):
    """Every newcomer is a surprise: the pass of its step has a prompt in it."""
    engine = launching(build_engine(endless, "autoregressive", max_model_len=256))
    ahead = engine._stepper.ahead
    engine.submit(PROMPTS[0], SamplingParams(240))

    def take(steps, every=None):
        before = (ahead.num_taken, ahead.num_dropped)
        for number in range(steps):
            if every is not None and number % every == 0:
                engine.submit(PROMPTS[1], SamplingParams(1))
            engine.step(settled=False)
        return ahead.num_taken - before[0], ahead.num_dropped - before[1]

    assert take(10) == (9, 0)
    taken, dropped = take(80, every=5)
    assert 0 < taken < 20
    assert 0 < dropped < 5
    assert take(20) == (0, 0)  # it is not forgotten at once
    take(90)
    assert take(20) == (20, 0)


def test_no_draft_is_launched_where_a_text_may_outgrow_the_model(endless):
    """Near the limit a request has less room than an order's depth, and the host must know how much."""
    outputs = []
    for ahead in (True, False):
        engine = build_engine(endless, "fixed_depth@exit2", ["exit2"], max_model_len=40)
        engine._stepper.ahead.enabled = ahead
        request = engine.submit(PROMPTS[0], SamplingParams(90))
        engine.run()
        outputs.append(said(engine, [request]))
    assert outputs[0] == outputs[1]
    assert len(request.token_ids) == 35


def test_what_was_launched_is_dropped_where_another_drafter_or_depth_is_ordered(endless):
    orders = [(0, 5)] * 7 + [(1, 5)] * 7 + [(1, 2)] * 7 + [(0, 0)] * 3
    outputs = []
    for ahead in (True, False):
        engine = build_engine(endless, "dcut@round_robin", ["exit2", "exit1"])
        engine._stepper.ahead.enabled = ahead
        engine.controller.choose = lambda context: Order(*orders[context.step % len(orders)])
        requests = [engine.submit(prompt, SamplingParams(70)) for prompt in PROMPTS[:3]]
        engine.run()
        outputs.append(said(engine, requests))
    assert outputs[0] == outputs[1]
    engine = launching(build_engine(endless, "dcut@round_robin", ["exit2", "exit1"]))
    engine.controller.choose = lambda context: Order(*orders[context.step % len(orders)])
    engine.submit(PROMPTS[0], SamplingParams(150))
    for _ in range(len(orders) + 1):
        engine.step()
    ahead = engine._stepper.ahead
    assert (ahead.num_taken, ahead.num_dropped) == (3 * (7 - 1 - SAME_ORDERS), 3)


def test_phases_of_a_step_that_was_begun_ahead_leave_out_what_the_host_did_between(monkeypatch):
    ticks = iter([0.0, 1.0, 3.0, 10.0, 14.0, 20.0, 21.0, 29.0, 40.0, 50.0, 55.0, 60.0, 63.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    clock = PhaseClock(torch.device("cpu"))  # at 0
    clock.start()
    clock.mark("verify")
    clock.start_next()
    clock.mark("draft")
    assert clock.seconds() == {"verify": 2.0}
    clock.start(begun=True)
    clock.mark("verify")
    assert clock.seconds() == {"draft": 4.0, "": 6.0, "verify": 1.0}
    clock.start_next()
    clock.mark("draft")
    clock.start()
    clock.mark("verify")
    assert clock.seconds() == {"verify": 5.0}  # what was begun came to nothing
    clock.start_next()
    clock.mark("draft")
    assert clock.seconds() == {"verify": 5.0}


def test_a_batch_after_a_step_is_what_the_host_would_have_put_together(endless):
    state = build_engine(endless).setup.state
    for count in (1, 3, 4):
        slots = np.arange(count)[::-1].copy()
        lengths, emitted = np.array([7, 9, 4, 12])[:count], np.array([3, 1, 0, 5])[:count]
        accepted = np.array([2, 0, 3, 1])[:count]
        before = state.batch(slots, lengths, np.full(count, 3), emitted)
        before.fed[2].add_(torch.from_numpy(accepted))
        ahead = state.after(before, torch.from_numpy(accepted), 3)
        late = state.batch(slots, lengths + accepted + 1, np.full(count, 3), emitted + accepted + 1)
        assert torch.equal(ahead.table, late.table)
        for name in ("device_slots", "device_lengths", "device_room", "positions", "fed"):
            assert torch.equal(getattr(ahead, name), getattr(late, name)), name
            assert getattr(ahead, name).stride() == getattr(late, name).stride(), name
        assert (ahead.lengths >= late.lengths).all()
        assert np.array_equal(ahead.room, late.room)


@pytest.mark.parametrize("budget", [8192, 10])
def test_who_decodes_for_the_first_time_is_in_the_pass_launched_ahead(endless, budget):
    """A prompt's last step knows who will decode behind it, and how long each text will be."""
    outputs = []
    for ahead in (True, False):
        engine = build_engine(endless, "autoregressive", max_num_batched_tokens=budget)
        engine._stepper.ahead.enabled = ahead
        requests = [engine.submit(prompt, SamplingParams(20, temperature=0.5)) for prompt in (PROMPTS[1], PROMPTS[0])]
        for _ in range(6):
            engine.step()
        requests.append(engine.submit(PROMPTS[3], SamplingParams(9, seed=4, temperature=1.5, top_k=9)))
        engine.run()
        outputs.append(said(engine, requests))
        assert engine._stepper.ahead.num_dropped <= ahead  # the third request came by surprise
    assert outputs[0] == outputs[1]
    steps, launching_ahead = engine.tally.steps.table(), build_engine(endless, "autoregressive")
    assert len(steps) >= 20
    launching(launching_ahead).submit(PROMPTS[0], SamplingParams(9))
    launching_ahead.run()
    ahead = launching_ahead._stepper.ahead
    assert (ahead.num_taken, ahead.num_dropped) == (9 - 1, 0)  # the first token is the prompt's


def optioned(target, device, options):
    """An engine with options, whose set-up says it is on a device when it is asked whether to launch ahead."""
    engine = build_engine(target, "autoregressive", options=options)
    real, engine.setup.device = engine.setup.device, torch.device(device)
    engine._stepper.ahead = Ahead(engine, engine._stepper._limits)
    engine.setup.device = real
    return engine


@pytest.mark.parametrize(
    ("device", "options", "launches"),
    [
        ("cpu", EngineOptions(), False),
        ("cpu", EngineOptions(launch_ahead=True), False),  # which would have to compute it first
        ("cpu", None, False),
        ("cuda", EngineOptions(), True),
        ("cuda:1", EngineOptions(), True),
        ("cuda", None, True),
        ("cuda", EngineOptions(launch_ahead=False), False),
    ],
)
def test_beginnings_are_launched_ahead_on_cuda_unless_the_options_say_otherwise(endless, device, options, launches):
    engine = optioned(endless, device, options)
    assert engine._stepper.ahead.enabled == launches
    run_all(engine)
    ahead = engine._stepper.ahead
    assert (ahead.num_taken > 10) == launches
    assert launches or (ahead.num_taken, ahead.num_dropped) == (0, 0)


@pytest.mark.parametrize(("option", "called"), [(False, True), (True, False)])
def test_an_engine_that_is_told_so_launches_ahead_whatever_its_options_say(endless, option, called):
    engine = optioned(endless, "cuda", EngineOptions(launch_ahead=option))
    engine.launch_ahead(called)
    run_all(engine)
    assert (engine._stepper.ahead.num_taken > 10) == called
