"""Block drafters in the engine: what they draft is what their definition says of the text, whatever happened before."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.live.greedy import decode_greedy, decode_sampled
from specsim.live.sampling import SamplingParams
from tests.live.drafters.scripted import plain
from tests.live.drafters.trained import (
    Definition,
    Generous,
    as_arm,
    block_net,
    check_every_draft,
    shape_of,
    trained_engine,
)
from tests.live.engine.engines import build_engine, generate, refusal, some_prompts, table

PROMPTS = some_prompts()
PAIRS = some_prompts(lengths=(5, 9, 1), low=1, high=8)
LONG = SamplingParams(max_tokens=16)
VOCABULARY = 50

VARIANTS = {
    "two layers": {},
    "one layer": {"num_layers": 1},
    "three layers, scaled": {"num_layers": 3, "embed_scale": 2.0, "logit_scale": 0.5, "logit_cap": 30.0},
    "larger block than is drafted": {"block_size": 9},
}

SITUATIONS = {
    "joins": {"max_num_seqs": 3},
    "alone": {"max_num_seqs": 1},
    "prompts in pieces": {"max_num_seqs": 3, "max_num_batched_tokens": 19},
    "few blocks": {"num_kv_blocks": 18},
    "blocks of one token": {"block_size": 1},
    "blocks longer than any text": {"block_size": 128},
}


@pytest.fixture(scope="module")
def target(make_target):
    return make_target(eos_token_id=None)


@pytest.fixture(scope="module")
def net(target):
    return block_net(target)


@pytest.fixture(scope="module")
def definition(net, target):
    return Definition(net, target)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_draft_of_every_kind_of_block_is_its_definitions(target, variant):
    net = block_net(target, **VARIANTS[variant])
    engine, watcher = trained_engine(target, [as_arm(net)], [4], acceptor=Generous(VOCABULARY))
    generate(engine, PROMPTS[:3], LONG)
    assert check_every_draft(watcher, [Definition(net, target)]) > 50
    accepted = np.concatenate([emission.num_accepted for _, emission, _ in watcher.steps])
    assert set(accepted.tolist()) >= {0, 2, 4}


def test_the_head_is_asked_for_the_ordered_drafts_alone(target, monkeypatch):
    """Of a small target it costs more than the drafter's layers."""
    net, asked = block_net(target, block_size=9), []
    honest = type(net).logits

    def logits(net, hidden, head):
        asked.append(tuple(hidden.shape[:-1]))
        return honest(net, hidden, head)

    engine, _ = trained_engine(target, [as_arm(net)], [3])
    monkeypatch.setattr(type(net), "logits", logits)
    generate(engine, PROMPTS[:2], LONG)
    steps = engine.tally.steps.table()
    drafting = steps[(steps["batch"] > 0) & (steps["num_drafted"] > 0)]
    assert len(drafting) > 3
    assert asked == [(batch, 3) for batch in drafting["batch"]]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_draft_is_the_definitions_in_any_batch(target, net, definition, situation):
    engine, watcher = trained_engine(
        target, [as_arm(net)], [3, 5], acceptor=Generous(VOCABULARY), **SITUATIONS[situation]
    )
    generate(engine, PROMPTS, LONG)
    assert check_every_draft(watcher, [definition]) > 80
    if situation == "few blocks":
        assert engine.scheduler.num_preemptions > 0


def test_blocks_of_other_shapes_draft_as_defined(target):
    net = block_net(target, shape=shape_of(target, num_heads=4, num_kv_heads=4, head_dim=16, attention_bias=True))
    engine, watcher = trained_engine(target, [as_arm(net)], [5], acceptor=Generous(VOCABULARY))
    generate(engine, PROMPTS[:3], LONG)
    assert check_every_draft(watcher, [Definition(net, target)]) > 40


def test_stopping_early_only_cuts_the_block(small):
    """One pass a step, however soon the policy stops."""
    net = block_net(small)
    engine = build_engine(small, "confidence_stop:score=drawn_prob,threshold=.3", [as_arm(net)], cost=PRICES)
    calls = []
    net.norm.register_forward_pre_hook(lambda *_: calls.append(1))
    generate(engine, PAIRS, SamplingParams(16, 1.5))
    steps = engine.tally.steps.table()
    assert len(calls) == int((steps["depth"] > 0).sum())
    assert len(set(steps["depth"].tolist()) - {0}) > 1


def test_after_idle_and_plain_steps_a_block_drafter_has_caught_up(target, net, definition):
    other = block_net(target, seed=7)
    makers = [as_arm(net, name="one"), as_arm(other, name="other")]
    engine, watcher = trained_engine(
        target, makers, [4, 2, 0, 3], arms=[0, 1, 1], acceptor=Generous(VOCABULARY), max_num_seqs=3
    )
    generate(engine, PROMPTS, LONG)
    assert check_every_draft(watcher, [definition, Definition(other, target)]) > 50
    assert any(step.missed for step, _, _ in watcher.steps[5:])


def test_what_was_missed_is_computed_in_passes_of_bounded_size(target, net, definition, monkeypatch):
    monkeypatch.setattr("specsim.live.drafters.target_features.MOST_TOKENS", 6)
    monkeypatch.setattr("specsim.live.drafters.live_block.MOST_TOKENS", 6)
    engine, watcher = trained_engine(target, [as_arm(net)], [3, 0, 0], acceptor=Generous(VOCABULARY))
    sizes = []
    run = engine.drafters[0]._absorb.run
    monkeypatch.setattr(engine.drafters[0]._absorb, "run", lambda rows: (sizes.append(rows.total), run(rows))[1])
    generate(engine, PROMPTS, LONG)
    assert max(sizes) == 6
    assert check_every_draft(watcher, [definition]) > 25


def test_near_its_context_limit_a_block_drafts_less_and_then_nothing(make_target):
    """CASES 15: a drafter that reads 512 positions, after 509 tokens. The places of its block that lie beyond are
    not proposed; a block is always whole."""
    target = make_target(eos_token_id=None, max_position_embeddings=1024)
    net = block_net(target, shape=shape_of(target, max_positions=512), block_size=8)
    engine, watcher = trained_engine(
        target, [as_arm(net)], [7], max_depth=7, max_model_len=1024, block_size=64, acceptor=Generous(VOCABULARY)
    )
    generate(engine, [np.resize(np.arange(2, 50), 508), PROMPTS[0]], SamplingParams(max_tokens=12))
    rooms = [
        (len(text), int(step.seen.num_drafts[row]))
        for step, _, texts in watcher.steps
        for row, text in enumerate(texts)
    ]
    assert rooms[0] == (509, 3)
    assert all(count == max(0, min(7, 512 - length)) for length, count in rooms)
    assert any(length > 512 for length, _ in rooms)
    check_every_draft(watcher, [Definition(net, target)])


def test_a_batch_all_beyond_the_context_limit_costs_no_pass(make_target):
    target = make_target(eos_token_id=None)
    net = block_net(target, shape=shape_of(target, max_positions=32))
    engine, watcher = trained_engine(target, [as_arm(net)], [3])
    calls = []
    net.norm.register_forward_pre_hook(lambda *_: calls.append(1))
    (request,) = generate(engine, [np.resize(np.arange(2, 50), 40)], SamplingParams(max_tokens=4))
    assert not calls
    assert len(request.token_ids) == 4
    assert [int(step.seen.num_drafts.sum()) for step, _, _ in watcher.steps] == [0, 0, 0]


SPECS = [
    "fixed_depth",
    "fixed_ratio:ratio=.4",
    "goodput_depth",
    "confidence_stop:score=drawn_prob,threshold=.5",
    "specdec_pp:score=drawn_prob,threshold=.6",
    "dcut:ratios=all,include_zero=true,numerator=bonus",
    "dcut_causal:score=max_prob",
    "dcut_lagged:score=max_prob,start=optimistic",
    "dspark:score=max_prob",
    "tetris:capacity=6",
]
PRICES = table(["LiveBlock"], 2e-5)
"""At which something is verified."""


@pytest.fixture(scope="module")
def small(make_target):
    """A target of few tokens, so that random drafts are accepted now and then."""
    return replace(make_target(eos_token_id=None, vocab_size=8), tokenizer=None, tokenizer_hash="")


@pytest.mark.parametrize("spec", SPECS)
def test_output_is_that_of_plain_decoding_under_every_policy_greedy_and_at_a_seed(small, spec):
    alone = replace(small, model=plain(small))
    expected = [*decode_greedy(alone, PAIRS[:1], 16), *decode_sampled(alone, PAIRS[1:], [5, 9], 1.5, 16)]
    params = [SamplingParams(16), SamplingParams(16, 1.5, seed=5), SamplingParams(16, 1.5, seed=9)]
    engine = build_engine(small, spec, [as_arm(block_net(small))], cost=PRICES)
    requests = generate(engine, PAIRS, params)
    assert [request.token_ids for request in requests] == [output.token_ids.tolist() for output in expected]
    assert engine.tally.finish().num_accepted > 0


def test_a_drafter_of_another_target_is_refused_in_one_line(target, make_target):
    wide = make_target(hidden_size=24, eos_token_id=None)
    message = refusal(lambda: trained_engine(target, [as_arm(block_net(wide))], [3]))
    assert message == "drafter 'LiveBlock' was made for a target with hidden states of 24; 'tiny' has 48"
    deep = make_target(eos_token_id=None, num_hidden_layers=5)
    message = refusal(lambda: trained_engine(deep, [as_arm(block_net(target))], [3]))
    assert message == "drafter 'LiveBlock' was made for a target with 4 layers; 'tiny' has 5"


def test_more_drafts_than_a_block_has_places_for_are_refused(target):
    message = refusal(lambda: trained_engine(target, [as_arm(block_net(target))], [3], max_depth=6))
    assert message == "drafter 'LiveBlock' drafts 5 tokens at most; depth is 6"
