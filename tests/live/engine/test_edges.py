"""Edges of the engine: who watches raises or steps, tight limits, extreme laws, several engines, threads, and after."""

import copy
import json
import pickle
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from specsim.cost.examples import linear_table
from specsim.live.engine import Engine, LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.phase_clock import PhaseClock
from specsim.live.sampling import SamplingParams
from specsim.serving import EngineConfig
from specsim.sim import ClosedLoop, simulate
from tests.live.byte_tokenizer import END
from tests.live.engine.engines import (
    DEPTH,
    LIMITS,
    build_engine,
    check_all_is_given_back,
    early_exit,
    generate,
    ngram,
    refusal,
    some_prompts,
    table,
)
from tests.live.engine.test_greedy_identity import SPECS
from tests.sim.hand_trace import HandRequest, HandTrace

PROMPTS = some_prompts()
TOKENS = 14
FIRST = [specs[0] for specs in SPECS.values()]


def plainly(target, prompts=PROMPTS, params=None, **limits):
    """Outputs without drafts."""
    params = SamplingParams(TOKENS) if params is None else params
    return [
        request.token_ids for request in generate(build_engine(target, "autoregressive", **limits), prompts, params)
    ]


@pytest.fixture(scope="module")
def plain(endless):
    return plainly(endless)


@pytest.fixture(scope="module")
def single(make_target):
    """A target that computes in float32."""
    return replace(make_target("float32", eos_token_id=None), tokenizer=None)


def run_through(engine, error, settled=False):
    """Step on whatever is raised; how often it was."""
    raised = 0
    while True:
        try:
            if not engine.step(settled):
                return raised
        except error:
            raised += 1


class Clumsy:
    """Raises every other time that it is told something."""

    def __init__(self):
        self.told = self.steps = 0

    def tell(self, *_):
        self.told += 1
        if self.told % 2:
            raise ZeroDivisionError("of a listener")

    on_request = tell

    def on_step(self, row, step, emission):
        self.steps += 1
        self.tell()


@pytest.mark.parametrize("settled", [True, False])
def test_what_observers_and_listeners_raise_comes_out_and_changes_no_output(stopping, settled):
    expected = plainly(stopping)
    clumsy = Clumsy()
    engine = build_engine(stopping, "fixed_depth", ["exit2"], observers=[clumsy], max_num_seqs=3)
    requests = [engine.submit(prompt, SamplingParams(TOKENS), on_chunk=clumsy.tell) for prompt in PROMPTS]
    raised = run_through(engine, ZeroDivisionError, settled)
    assert 5 < raised <= clumsy.told
    assert [request.token_ids for request in requests] == expected
    assert clumsy.steps == engine.tally.totals.num_steps == len(engine.tally.steps)
    assert len(engine.ended) == len(PROMPTS) == len(engine.tally.requests)
    check_all_is_given_back(engine)


def test_of_several_exceptions_of_a_step_the_first_is_raised_with_a_note_on_the_others(endless):
    engine = build_engine(endless, "fixed_depth", ["exit2"])

    def fail(chunk):
        raise KeyError(chunk.request_id)

    for prompt in PROMPTS[:3]:
        engine.submit(prompt, SamplingParams(1), on_chunk=fail)
    with pytest.raises(KeyError, match="0") as caught:
        engine.run()
    assert caught.value.__notes__ == ["2 more observers or listeners of the same step raised: KeyError"]
    check_all_is_given_back(engine)
    assert engine.step() is False


def test_a_step_inside_a_step_is_refused_in_one_line(endless, plain):
    engine = build_engine(endless, "fixed_depth", ["exit2"])
    request = engine.submit(PROMPTS[0], SamplingParams(TOKENS), on_chunk=lambda chunk: engine.step())
    told = {refusal(engine.step) for _ in range(3)}
    assert len(told) == 1
    assert "an observer or listener may submit and cancel, and must not step" in told.pop()
    run_through(engine, Exception)
    assert request.token_ids == plain[0]


@pytest.mark.parametrize("settled", [True, False])
def test_listeners_may_submit_and_cancel_in_any_step(endless, settled):
    """Also from within the news of a cancellation."""
    engine = build_engine(endless, "fixed_depth", ["exit2"], max_num_seqs=2)
    more, left = [], list(PROMPTS[2:])

    def hear(chunk):
        if len(chunk.token_ids) and left:
            more.append(engine.submit(left.pop(0), SamplingParams(TOKENS), on_chunk=hear))
        if chunk.request_id == 0:
            engine.cancel(second)
        if chunk.request_id == 1 and chunk.finish_reason == "cancelled":
            engine.cancel(first)

    first = engine.submit(PROMPTS[0], SamplingParams(TOKENS), on_chunk=hear)
    second = engine.submit(PROMPTS[1], SamplingParams(TOKENS), on_chunk=hear)
    while engine.step(settled):
        pass
    assert first.status == second.status == "cancelled"
    assert [request.token_ids for request in more] == plainly(endless, PROMPTS[2:])
    assert all(request.admitted_at >= request.arrived_at for request in (first, second, *more))
    check_all_is_given_back(engine)


def test_a_request_that_comes_after_a_step_s_end_is_not_admitted_before_it_came(endless):
    engine = build_engine(endless, "fixed_depth", ["exit2"])
    engine.submit(PROMPTS[0], SamplingParams(TOKENS))
    engine.step()
    later = engine.submit(PROMPTS[1], SamplingParams(TOKENS))  # the next step starts where that one ended
    engine.step()
    assert later.admitted_at >= later.arrived_at


def test_a_pass_that_fails_may_be_taken_again(endless, plain):
    """As when memory runs out: before the pass, and after it."""
    for spec, arms in (("fixed_depth", ["exit2"]), ("dcut@round_robin", ["exit2", "ngram"])):
        engine = build_engine(endless, spec, arms, max_num_batched_tokens=26)
        run, turn = engine.setup.runner.run, iter(range(10_000))

        def failing(*arguments, run=run, turn=turn):
            now = next(turn) % 5
            if now == 1:
                raise MemoryError
            out = run(*arguments)
            if now == 3:
                raise MemoryError
            return out

        engine.setup.runner.run = failing
        requests = [engine.submit(prompt, SamplingParams(TOKENS)) for prompt in PROMPTS]
        assert run_through(engine, MemoryError) > 5
        assert [request.token_ids for request in requests] == plain
        check_all_is_given_back(engine)


def test_a_request_of_another_engine_is_not_cancelled_and_requests_are_told_apart(endless):
    one, other = build_engine(endless), build_engine(endless)
    mine, theirs = one.submit(PROMPTS[0]), other.submit(PROMPTS[0])
    assert len({mine, theirs}) == 2
    assert mine != theirs
    assert refusal(lambda: one.cancel(theirs)) == "request 0 is not one of this engine's"
    one.cancel(mine)
    one.cancel(mine)
    assert one.ended == []
    assert not one.step()
    assert one.ended == [mine]
    one.cancel(mine)
    assert [request.status for request in (mine, theirs)] == ["cancelled", "waiting"]
    assert pickle.loads(pickle.dumps(mine)).status == "cancelled"


def test_an_engine_that_needs_more_than_its_set_up_has_is_refused(endless):
    engine = build_engine(endless)
    setup, drafters, controller, prices = engine.setup, engine.drafters, engine.controller, table(["ngram"])

    def made(setup, **changes):
        return refusal(lambda: Engine(setup, drafters, controller, prices, EngineConfig(**LIMITS | changes)))

    assert made(setup, max_num_seqs=5) == "the set-up was made for max_num_seqs 4; the engine's is 5"
    assert made(setup, block_size=8) == "the set-up was made for block_size 4; the engine's is 8"
    shallow = LiveSetup(endless, engine.config, DEPTH - 1, EngineOptions())
    assert made(shallow) == "the set-up was made for lookahead 4; the engine's is 5"


def test_engines_over_one_set_up_take_turns(endless, plain):
    one = build_engine(endless, "fixed_depth", ["exit2"])
    two = Engine(one.setup, one.drafters, one.controller, table(["exit2"]), one.config)
    first = one.submit(PROMPTS[0], SamplingParams(TOKENS))
    one.step()
    assert "another engine over this set-up has requests" in refusal(lambda: two.submit(PROMPTS[1]))
    one.run()
    second = two.submit(PROMPTS[1], SamplingParams(TOKENS))
    two.run()
    assert [first.token_ids, second.token_ids] == plain[:2]


def test_engines_over_one_model_may_alternate_and_an_engine_may_run_in_another_thread(endless, plain):
    engines = [build_engine(endless, "fixed_depth", ["exit2"]), build_engine(endless, "dcut", ["exit1"])]
    requests = [[engine.submit(prompt, SamplingParams(TOKENS)) for prompt in PROMPTS] for engine in engines]
    while any([engine.step(settled=False) for engine in engines]):  # noqa: C419, both step
        pass
    thread = threading.Thread(target=lambda: requests.append(generate(engines[0], PROMPTS, SamplingParams(TOKENS))))
    thread.start()
    thread.join()
    assert [[request.token_ids for request in each] for each in requests] == [plain] * 3


@pytest.mark.parametrize(
    "limits",
    [
        {"block_size": 1},
        {"block_size": 128},
        {"max_model_len": 20},
        {"max_num_batched_tokens": 4 * (DEPTH + 1)},
        {"max_num_seqs": 1, "max_num_batched_tokens": DEPTH + 1},
        {"num_kv_blocks": -(-(17 + TOKENS + DEPTH) // 4)},
    ],
)
@pytest.mark.parametrize(("spec", "drafter"), [("fixed_depth", "exit2"), ("dcut", "ngram")])
def test_tight_limits_change_no_token(endless, plain, spec, drafter, limits):
    """The least token budget, the least cache that holds the longest request, contexts that end among drafts."""
    engine = build_engine(endless, spec, [drafter], **limits)
    outputs = [request.token_ids for request in generate(engine, PROMPTS, SamplingParams(TOKENS))]
    longest = limits.get("max_model_len", LIMITS["max_model_len"])
    assert outputs == [tokens[: longest - len(prompt)] for tokens, prompt in zip(plain, PROMPTS, strict=True)]
    if blocks := limits.get("num_kv_blocks"):
        fewer = build_engine(endless, spec, [drafter], num_kv_blocks=blocks - 1)
        assert "KV blocks" in refusal(lambda: fewer.submit(PROMPTS[1], SamplingParams(TOKENS)))


@pytest.mark.parametrize("spec", ["fixed_depth", "dcut", "dcut:include_zero=true", "fixed_ratio:ratio=.5"])
def test_a_step_whose_look_up_finds_nothing_verifies_nothing_and_emits_one_token_each(endless, spec):
    """All drafts are empty at a depth above 0."""

    class Nothing:
        def __init__(self, drafter):
            self._drafter, self.spec, self.score_source = drafter, drafter.spec, drafter.score_source
            self.catch_up, self.release = drafter.catch_up, drafter.release

        def draft(self, batch, depth, stop=None):
            return self._drafter.draft(replace(batch, lengths=np.minimum(batch.lengths, 1)), depth, stop)

    engine = build_engine(endless, spec, [lambda setup, depth: Nothing(ngram(setup, depth))])
    assert [request.token_ids for request in generate(engine, PROMPTS, SamplingParams(TOKENS))] == plainly(endless)
    steps = engine.tally.steps.table()
    decodes = steps[steps["depth"] > 0]
    assert len(decodes)
    assert not decodes["num_drafted"].any()
    assert not decodes["num_verified"].any()
    assert (decodes["num_emitted"] == decodes["batch"]).all()


def test_the_first_token_may_end_an_output_by_a_stop_token_or_a_stop_text(speaking):
    engine = build_engine(speaking, "fixed_depth", ["exit2"])
    [free] = generate(engine, [[65, 66]], SamplingParams(3))
    first = free.token_ids[0]
    told = []
    engine = build_engine(speaking, "fixed_depth", ["exit2"])
    engine._stepper._committer._stop_ids = np.array([first])
    request = engine.submit([65, 66], SamplingParams(9), on_chunk=told.append, want_text=True)
    engine.run()
    assert (request.token_ids, request.text, request.finish_reason) == ([first], "", "stop")
    assert [(chunk.token_ids, chunk.text, chunk.finish_reason) for chunk in told] == [([first], "", "stop")]
    assert first != END


LAWS = [{}, {"top_k": 1}, {"top_k": 10**6, "top_p": 0.5}, {"top_p": 1e-60}]


@pytest.mark.parametrize("drafter", ["exit2", early_exit(2, "sampled")])
@pytest.mark.parametrize("temperature", [1e-60, 1e-45, 1e-5, 3e38])
def test_any_temperature_is_served_and_a_certain_law_is_the_greedy_one(single, temperature, drafter):
    prompts = PROMPTS[:3]
    greedy = plainly(single, prompts, SamplingParams(6))
    for law in LAWS:
        params = SamplingParams(6, temperature=temperature, seed=5, **law)
        requests = generate(build_engine(single, "fixed_depth", [drafter]), prompts, params)
        assert [request.error for request in requests] == [None] * len(prompts)
        if temperature < 1e-9 or law.get("top_k") == 1 or law.get("top_p", 1) < 0.1:
            assert [request.token_ids for request in requests] == greedy


def test_requests_of_one_seed_and_one_prompt_are_the_same(single):
    params = SamplingParams(TOKENS, temperature=1.0, seed=9)
    same = generate(build_engine(single, "dcut", ["exit2"]), [PROMPTS[1]] * 6, params)
    assert len({tuple(request.token_ids) for request in same}) == 1


class Narrow(torch.nn.Module):
    """An output head that knows of no token from `first` on, as of a vocabulary padded with -inf."""

    def __init__(self, head, first):
        super().__init__()
        self.head, self.weight, self.first = head, head.weight, first

    def forward(self, hidden):
        logits = self.head(hidden).clone()
        logits[..., self.first :] = float("-inf")
        return logits


@pytest.mark.parametrize("first", [1, 20])
def test_tokens_that_the_model_excludes_are_never_emitted(make_target, first):
    """Down to a law of one token, whose lead over the next is infinite."""
    target = replace(make_target("float32", eos_token_id=None), tokenizer=None)
    target.model.lm_head = Narrow(target.model.lm_head, first)
    for temperature in (0.0, 1.0):
        params = SamplingParams(TOKENS, temperature=temperature, seed=4)
        for spec, drafter in (("dcut", "exit2"), ("fixed_depth", early_exit(2, "sampled")), (FIRST[7], "exit2")):
            for request in generate(build_engine(target, spec, [drafter]), PROMPTS[:3], params):
                assert request.status == "finished"
                assert max(request.token_ids) < first


@pytest.mark.parametrize("spec", FIRST)
def test_a_controller_that_ran_live_keeps_no_tensor_and_goes_on_in_the_simulator(endless, spec):
    engine = build_engine(endless, spec, ["exit2"])
    generate(engine, PROMPTS[:4], SamplingParams(TOKENS))
    controller = engine.controller
    json.dumps(controller.state_dict(), allow_nan=False)
    assert not list(tensors(vars(controller), set()))
    assert not list(tensors(vars(engine.tally), set()))
    assert pickle.loads(pickle.dumps(controller)).state_dict() == controller.state_dict()
    assert copy.deepcopy(controller).state_dict() == controller.state_dict()
    rng = np.random.default_rng(0)
    entries = []
    for _ in range(4):
        accepted = np.cumprod(rng.random((20, DEPTH)) < 0.6, axis=1).sum(axis=1).tolist()
        entries.append(HandRequest(20, accepted, 7, confidence=rng.random((20, DEPTH))))
    trace = Scored(entries, controller.drafters)
    prices = linear_table(1e-3, 2e-4, drafters={"exit2": 2e-4}, max_depth=DEPTH)
    run = simulate(trace, prices, controller, EngineConfig(max_num_seqs=4), ClosedLoop(4, 8))
    assert len(run.requests) == 8


class Scored(HandTrace):
    """A trace with every score of its drafters, all the same."""

    def blocks(self, index, arm):
        found = super().blocks(index, arm)
        return replace(found, scores=dict.fromkeys(self.drafters[arm].scores, found.scores["drawn_prob"]))


def tensors(value, seen):
    """Every tensor within a value, however deep."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
    held = value if isinstance(value, list | tuple | set | frozenset) else []
    if isinstance(value, dict):
        held = [*value.keys(), *value.values()]
    elif hasattr(value, "__dict__"):
        held = [*held, *vars(value).values()]
    held = [*held, *(getattr(value, name, None) for name in getattr(value, "__slots__", ()))]
    for each in held:
        yield from tensors(each, seen)


def test_a_step_that_brought_nothing_to_the_host_is_timed_once_it_has_happened(monkeypatch):
    """As one that computes a part of a prompt on CUDA, where an event that has not happened cannot be read."""

    class Event:
        happened = 0

        def __init__(self, enable_timing=False):
            self.at = 0

        def record(self):
            self.at = Event.latest = getattr(Event, "latest", 0) + 1

        def synchronize(self):
            Event.happened = self.at

        def elapsed_time(self, other):
            if max(self.at, other.at) > Event.happened:
                raise RuntimeError("Both events must be completed before calculating elapsed time.")
            return 1000.0 * (other.at - self.at)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = PhaseClock(torch.device("cuda"))
    for _ in range(2):
        clock.start()
        clock.mark("draft")
        clock.mark("verify")
        assert clock.seconds() == {"draft": 1.0, "verify": 1.0}


def test_a_pass_runs_on_the_set_up_s_gpu_whatever_the_thread_s_is(endless, monkeypatch):
    engine = build_engine(endless, "fixed_depth", ["exit2"])
    inside = []

    @contextmanager
    def device():
        inside.append("in")
        yield
        inside.append("out")

    run = engine.setup.runner.run
    monkeypatch.setattr(engine.setup, "on_device", device)
    monkeypatch.setattr(engine.setup.runner, "run", lambda *rows: (inside.append("pass"), run(*rows))[1])
    engine.submit(PROMPTS[0], SamplingParams(2))
    engine.step()
    assert inside == ["in", "pass", "out"]
    monkeypatch.undo()
    assert isinstance(engine.setup.on_device(), nullcontext)
    monkeypatch.setattr(engine.setup, "device", torch.device("cuda"))
    monkeypatch.setattr(engine.setup, "state", SimpleNamespace(history=SimpleNamespace(device=torch.device("cuda:1"))))
    assert engine.setup.on_device().idx == 1


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"max_tokens": 2.5}, "max_tokens is 2.5; it must be a whole number"),
        ({"top_k": True}, "top_k is True; it must be a whole number"),
        ({"seed": 1.5}, "seed is 1.5; it must be a whole number"),
        ({"top_k": 2**63}, "below 2^63"),
        ({"temperature": 1e39}, "temperature is 1e+39"),
        ({"temperature": float("nan")}, "temperature is nan"),
    ],
)
def test_parameters_that_the_device_could_not_hold_are_refused_before_a_step(wrong, told):
    assert told in refusal(lambda: SamplingParams(**wrong))


def test_one_stop_text_need_not_be_in_a_list(endless):
    assert SamplingParams(stop="abc").stop == ("abc",)
    assert "a prompt must be a list of token ids" in refusal(lambda: build_engine(endless).submit([[1, 2], [3]]))
