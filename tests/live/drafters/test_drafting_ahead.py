"""Drafters that begin before the host knows how long the texts are draft what they would have drafted then.

On a CPU launching is computing, so that everything but the gain is really there.
"""

import numpy as np
import pytest

from specsim.live.drafters import live_model, target_features
from specsim.live.drafters.batch import DraftsAhead
from specsim.live.sampling import SamplingParams
from specsim.serving.foresight import SAME_ORDERS
from tests.live.drafters.scripted import as_drafter, check_drafts, plain, wobbled
from tests.live.drafters.trained import (
    Definition,
    Generous,
    as_arm,
    block_net,
    check_every_draft,
    eagle_net,
    trained_engine,
)
from tests.live.engine.engines import check_all_is_given_back, some_prompts

PROMPTS = some_prompts(lengths=(5, 9, 1, 12), low=1, high=8)
VOCABULARY = 50
LONG = [SamplingParams(max_tokens=length, ignore_eos=True) for length in (60, 33, 47, 52)]

SCRIPTS = {
    "always the same": ((5,), (0,)),
    "other depths and plain steps": ((5,) * 9 + (3,) * 8 + (0,) + (5,) * 7 + (1,) * 6, (0,)),
    "another drafter between": ((5,), (0,) * 8 + (1,) * 2 + (0,) * 7 + (1,) * 7),
}
SITUATIONS = {
    "all at once": {},
    "joins": {"max_num_seqs": 2},
    "prompts in pieces": {"max_num_seqs": 3, "max_num_batched_tokens": 19},
    "few blocks": {"num_kv_blocks": 34, "max_num_seqs": 3},
    "blocks of one token": {"block_size": 1},
}


@pytest.fixture(scope="module")
def target(make_target):
    return make_target(eos_token_id=None)


@pytest.fixture(scope="module")
def near(target):
    return wobbled(target)


def makers_of(kind, target, near):
    """The drafter, another one, and the engine's drafts held against their definitions."""
    if kind == "model":
        return [as_drafter(near), as_drafter(wobbled(target, "other", seed=1))], None
    nets = [eagle_net(target), block_net(target)] if kind == "eagle" else [block_net(target), eagle_net(target)]
    return [as_arm(net) for net in nets], [Definition(net, target) for net in nets]


def run(target, makers, script, situation, ahead=True):
    """An engine that accepts any drafts, after four requests, and who watched it."""
    depths, arms = SCRIPTS[script]
    engine, watcher = trained_engine(
        target, makers, depths, arms, acceptor=Generous(VOCABULARY), **SITUATIONS[situation]
    )
    engine._stepper.ahead.enabled = ahead
    requests = [engine.submit(prompt, params) for prompt, params in zip(PROMPTS, LONG, strict=True)]
    cancelled = engine.submit(PROMPTS[0], LONG[0])
    for _ in range(12):
        engine.step()
    engine.cancel(cancelled)
    engine.run()
    check_all_is_given_back(engine)
    return engine, watcher, [request.token_ids for request in requests]


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("kind", ["eagle", "block", "model"])
def test_every_draft_is_the_definition_s_word_on_the_text_as_it_turned_out(target, near, kind, script, situation):
    makers, definitions = makers_of(kind, target, near)
    engine, watcher, _ = run(target, makers, script, situation)
    assert all(isinstance(drafter, DraftsAhead) for drafter in engine.drafters)
    if definitions is None:
        assert check_drafts(watcher, plain(near), arm=0) > 100
    else:
        assert check_every_draft(watcher, definitions) > 100
    ahead = engine._stepper.ahead
    assert ahead.num_taken > 3
    assert script == "always the same" or ahead.num_dropped


@pytest.mark.parametrize("kind", ["eagle", "block", "model"])
def test_a_run_is_the_same_as_one_that_launches_nothing_ahead(target, near, kind):
    runs = []
    for ahead in (True, False):
        makers, _ = makers_of(kind, target, near)
        engine, watcher, outputs = run(target, makers, "other depths and plain steps", "joins", ahead)
        steps = engine.tally.steps.table()[["batch", "depth", "num_drafted", "num_accepted", "num_tokens_paid"]]
        tokens = [(step.tokens.tolist(), step.seen.num_drafts.tolist()) for step, *_ in watcher.steps if step.seen]
        runs.append((steps.tolist(), tokens, outputs))
    assert runs[0] == runs[1]


@pytest.mark.parametrize(("kind", "each"), [("eagle", 6), ("block", 6), ("model", 2)])
def test_a_cache_takes_in_what_a_step_can_have_brought_and_no_more(target, near, kind, each):
    """The step's drafts and a token more; of a model's drafts only the last is not there yet."""
    makers, _ = makers_of(kind, target, near)
    engine, _ = trained_engine(target, makers, (5,), acceptor=Generous(VOCABULARY))
    engine._stepper.ahead.enabled = True
    drafter = engine.drafters[0]
    passes = {"eagle": "_extend", "block": "_absorb", "model": "_runner"}[kind]
    run, totals = getattr(drafter, passes).run, []
    getattr(drafter, passes).run = lambda rows, *more: (totals.append(rows.total), run(rows, *more))[1]
    for prompt in PROMPTS[:3]:
        engine.submit(prompt, SamplingParams(80, ignore_eos=True))
    for _ in range(SAME_ORDERS + 4):
        engine.step()
    for _ in range(4):
        totals.clear()
        engine.step()
        assert totals[0] == 3 * each
        assert totals[1:] == ([3] * 4 if kind == "model" else [])
    assert engine._stepper.ahead.num_taken > 4


@pytest.mark.parametrize("kind", ["eagle", "block", "model"])
def test_nothing_is_drafted_ahead_where_the_pass_would_be_much_larger_than_it_need_be(target, near, kind, monkeypatch):
    """It is as large as it may have to be, which is known; what is there beyond costs time."""
    for module in (target_features, live_model):
        monkeypatch.setattr(module, "MOST_TOKENS_AHEAD", 1)
    makers, _ = makers_of(kind, target, near)
    engine, _, outputs = run(target, makers, "always the same", "all at once")
    assert engine._stepper.ahead.num_taken == 0
    assert np.all([len(output) for output in outputs])
