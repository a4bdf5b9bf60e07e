"""Sessions of captured passes: what the cost table charges is what the engine pays, and nothing is captured in the run.

On a CPU a replayed graph is stood in for by the pass itself, over the captured inputs.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from specsim.cost.examples import staircase_table
from specsim.live import packed_passes
from specsim.live.engine import LiveSetup
from specsim.live.packed_passes import PackedPasses
from specsim.live.profiler import BUCKETS
from specsim.live.prompts import read_prompts
from specsim.live.sampling import SamplingParams
from specsim.live.session import LiveSession
from specsim.live.session_config import SessionConfig, Weights
from specsim.live.session_replay import Acceptance
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace

DEPTH = 3
SIZES = (1, 2, 4, 8, 12, 16, 24)
NAMES = ("ngram", "exit2", "block")


@pytest.fixture
def captured(monkeypatch):
    """Tokens and requests of each graph, in the order they were captured, on a CPU that pretends to capture."""
    keys = []

    def capture(passes, size, num_requests, extra, key):
        keys.append((size, num_requests))
        fed = torch.zeros((3, num_requests), dtype=torch.int64)
        out = passes._body(*fed, size, extra)

        def replay():
            again = passes._body(*fed, size, extra)
            if isinstance(out, torch.Tensor):
                out.copy_(again)
                return
            out.logits.copy_(again.logits)
            out.query_start.copy_(again.query_start)

        passes._graphs[key] = packed_passes._Graph(SimpleNamespace(replay=replay), fed, extra, out)

    made = LiveSetup.__init__

    def with_buckets(setup, target, config, lookahead, options, buckets=()):
        made(setup, target, config, lookahead, options, buckets)
        setup.buckets = setup.runner._passes.buckets = buckets

    monkeypatch.setattr(PackedPasses, "_capture", capture)
    monkeypatch.setattr(LiveSetup, "__init__", with_buckets)
    return keys


@pytest.fixture(scope="module")
def target(make_target):
    return make_target("float64")


def price_list(max_depth=DEPTH):
    heights = {size: 1e-3 + 1e-4 * size for size in SIZES}
    return staircase_table(heights, (1, 6), drafters=dict.fromkeys(NAMES, 1e-4), max_depth=max_depth)


def session_of(target, prompts=(), **changes):
    given = {
        "weights": Weights("tiny", load_format="auto"),
        "drafters": ("ngram", "exit2"),
        "policy": "dcut:ratios=all@round_robin",
        "cost": price_list(),
        "depth": DEPTH,
        "concurrency": 6,
        "sampling": SamplingParams(max_tokens=9, ignore_eos=True),
    }
    return LiveSession(SessionConfig(**given | changes), prompts, target=target)


@pytest.fixture
def prompts(prompt_file, model_folder, monkeypatch):
    monkeypatch.setattr("specsim.live.session_config.check_source", lambda source: None)
    return read_prompts([prompt_file])[0].prompts


def charged(rows, table):
    """Tokens that the table says each step pays for, and which steps fit into a graph."""
    tokens = rows["batch"] + rows["num_verified"] + rows["prefill_tokens"]
    return np.array([table.tokens_paid(1, int(count)) for count in tokens]), tokens <= SIZES[-1]


def test_what_the_table_charges_is_what_a_session_pays(captured, target, prompts):
    session = session_of(target, prompts)
    assert session.setup.runner.buckets == SIZES
    rows = session.run().run.steps
    expected, fits = charged(rows, session.cost)
    np.testing.assert_array_equal(rows["num_tokens_paid"], expected)
    assert fits.sum() >= 8
    assert not fits.all()  # the first prompts together are beyond the largest graph, and run eagerly
    assert (rows["num_tokens_paid"] > rows["batch"] + rows["num_verified"] + rows["prefill_tokens"]).any()


def test_outputs_of_captured_sessions_are_those_of_eager_ones(captured, target, prompts):
    padded = session_of(target, prompts).run()
    assert captured
    count = len(captured)
    eager = session_of(target, prompts, cost="cpu-smollm2").run()
    assert len(captured) == count
    assert [one.token_ids for one in padded.requests] == [one.token_ids for one in eager.requests]


@pytest.mark.parametrize("policy", ["autoregressive", "fixed_depth@exit2", "dcut:ratios=all@exit2"])
def test_graphs_that_are_replayed_ahead_of_a_step_say_what_eager_passes_say(captured, target, prompts, policy):
    """Their outputs lie where the next replay of the same graph writes."""
    long = SamplingParams(max_tokens=25, ignore_eos=True)
    runs = []
    for cost in (price_list(), "cpu-smollm2"):
        session = session_of(target, prompts, policy=policy, sampling=long, cost=cost)
        ahead = session.engine._stepper.ahead
        ahead.enabled = bool(session.setup.buckets)
        result = session.run()
        runs.append([one.token_ids for one in result.requests])
        assert (ahead.num_taken > 5) == ahead.enabled
    assert captured
    assert runs[0] == runs[1]


def token_of_few(outputs, after=6):
    """A token that ends one or two of several outputs, and not the last ones, well after they began."""
    for token in range(50):
        first = [output.index(token) if token in output else len(output) for output in outputs]
        ended = [place for place in first if place < len(outputs[0])]
        if 1 <= len(ended) <= 2 and min(ended) > after and first[-1] == first[-2] == len(outputs[0]):
            return token
    raise AssertionError("no token ends few of the outputs")


def test_a_pass_launched_ahead_serves_those_who_are_left_where_their_own_would_be_the_same_graph(
    captured, make_target, prompts
):
    """Someone ends by surprise, and the pass of the next step is there with a row too many."""
    target, six = make_target("float64", eos_token_id=[0]), prompts[:6]
    whole = session_of(target, six, policy="autoregressive", sampling=SamplingParams(30, ignore_eos=True)).run()
    stop = token_of_few([one.token_ids for one in whole.requests])
    runs, served = [], []
    for enabled in (True, False):
        session = session_of(target, six, policy="autoregressive", sampling=SamplingParams(30))
        session.engine._stepper._committer._stop_ids = np.array([stop])
        ahead = session.engine._stepper.ahead
        ahead.enabled = enabled
        hand_over = ahead._hand_over

        def handed(step, launched, hand_over=hand_over):
            taken = hand_over(step, launched)
            if len(step.slots) < len(launched.batch):
                served.append(taken and len(step.out.query_start))
            return taken

        ahead._hand_over = handed
        result = session.run()
        decided = ["batch", "num_emitted", "num_tokens_paid", "prefill_tokens", "kv_blocks_used", "num_running"]
        runs.append(([one.token_ids for one in result.requests], result.run.steps[decided].tolist()))
    assert runs[0] == runs[1]
    assert 5 in served
    assert min(len(output) for output in runs[0][0]) < 30


@pytest.mark.parametrize("work", ["free", "layers:2"])
def test_nothing_is_captured_while_a_session_runs(captured, target, prompts, work):
    """Neither while its batch fills, nor as it drains: a capture in a step would be taken for the step's seconds."""
    drafters = (SyntheticDrafter("block", mean_acceptance_length=2.5, max_depth=DEPTH),)
    lengths = {"num_prompt_tokens": (3, 8), "num_output_tokens": (4, 12)}
    trace = SyntheticTrace(SyntheticConfig("small", drafters, num_requests=9, seed=1, **lengths))
    replay = {
        "acceptance": Acceptance(trace, 14, {"": work}), "drafters": (), "policy": "fixed_depth@block",
        "sampling": SamplingParams(),
    }  # fmt: skip
    for session in (session_of(target, **replay), session_of(target, prompts)):
        before = list(captured)
        assert {size for size, _ in before} == set(SIZES)
        rows = session.run().run.steps
        assert {1, 6} <= set(rows["batch"].tolist())
        assert captured == before


def test_nothing_is_captured_while_requests_come_one_by_one(captured, target, prompts):
    session = session_of(target, prompts, concurrency=None, arrival_rate=40.0)
    before = list(captured)
    rows = session.run().run.steps
    assert (rows["prefill_tokens"][rows["num_running"] <= 2] > 0).sum() > 2
    assert captured == before


def test_graphs_are_captured_for_the_batches_that_the_table_lets_run(captured, target, prompts):
    session = session_of(target, prompts, concurrency=None)
    assert session.engine_config.max_num_seqs == 6
    assert max(requests for _, requests in captured) == 6
    captured.clear()
    deep = session_of(target, prompts, concurrency=None, depth=7, cost=price_list(7))
    assert deep.engine_config.max_num_seqs == 3  # 24 tokens of the table, 8 a request
    assert max(requests for _, requests in captured) == 4


def test_a_run_without_a_table_is_captured_all_the_same(captured, target, prompts):
    session = session_of(target, prompts, policy="autoregressive", cost=None, drafters=("ngram",))
    assert session.setup.runner.buckets == BUCKETS
    rows = session.run().run.steps
    assert set(rows["num_tokens_paid"].tolist()) <= set(BUCKETS)
