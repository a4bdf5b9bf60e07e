"""EAGLE heads in the engine: what they draft is what their definition says of the text, whatever happened before."""

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
    eagle_net,
    shape_of,
    trained_engine,
)
from tests.live.engine.engines import build_engine, generate, refusal, some_prompts, table

PROMPTS = some_prompts()
PAIRS = some_prompts(lengths=(5, 9, 1), low=1, high=8)
LONG = SamplingParams(max_tokens=16)
VOCABULARY = 50

VARIANTS = {
    "plain": {},
    "two layers": {"num_layers": 2},
    "all norms": {"norm_before_fc": True, "norm_each_feature": True, "norm_output": True, "norm_before_residual": True},
    "few tokens": {"draft_vocab_size": 20},
    "own embedding": {"draft_vocab_size": 30, "own_embedding": True},
    "layers of the authors' choice": {"feature_layers": None},
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
    return eagle_net(target)


@pytest.fixture(scope="module")
def definition(net, target):
    return Definition(net, target)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_draft_of_every_kind_of_head_is_its_definitions(target, variant):
    net = eagle_net(target, **VARIANTS[variant])
    engine, watcher = trained_engine(target, [as_arm(net)], [4], acceptor=Generous(VOCABULARY))
    generate(engine, PROMPTS[:3], LONG)
    assert check_every_draft(watcher, [Definition(net, target)]) > 50
    accepted = np.concatenate([emission.num_accepted for _, emission, _ in watcher.steps])
    assert set(accepted.tolist()) >= {0, 2, 4}
    if net.config.draft_vocab_size is not None:
        proposed = {token for step, _, _ in watcher.steps for token in step.tokens.ravel().tolist()}
        assert proposed <= set(net.target_ids.tolist())


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_draft_is_the_definitions_in_any_batch(target, net, definition, situation):
    engine, watcher = trained_engine(
        target, [as_arm(net)], [3, 5], acceptor=Generous(VOCABULARY), **SITUATIONS[situation]
    )
    generate(engine, PROMPTS, LONG)
    assert check_every_draft(watcher, [definition]) > 80
    if situation == "few blocks":
        assert engine.scheduler.num_preemptions > 0


def test_heads_of_other_shapes_and_norms_draft_as_defined(target):
    llama = shape_of(target, num_heads=4, num_kv_heads=4, head_dim=16, qk_norm=False, attention_bias=True)
    net = eagle_net(target, shape=llama)
    engine, watcher = trained_engine(target, [as_arm(net)], [5], acceptor=Generous(VOCABULARY))
    generate(engine, PROMPTS[:3], LONG)
    assert check_every_draft(watcher, [Definition(net, target)]) > 40


def test_after_idle_and_plain_steps_a_head_has_caught_up(target, net, definition):
    other = eagle_net(target, seed=7)
    makers = [as_arm(net, name="one"), as_arm(other, name="other")]
    engine, watcher = trained_engine(
        target, makers, [4, 2, 0, 3], arms=[0, 1, 1], acceptor=Generous(VOCABULARY), max_num_seqs=3
    )
    generate(engine, PROMPTS, LONG)
    assert check_every_draft(watcher, [definition, Definition(other, target)]) > 50
    assert any(step.missed for step, _, _ in watcher.steps[5:])


def test_requests_of_one_step_may_have_different_drafters(target, net, definition):
    block = block_net(target)
    engine, watcher = trained_engine(
        target, [as_arm(net), as_arm(block)], [4, 5, 0], arms=[[0, 1, 0], [1, 0, 0]], acceptor=Generous(VOCABULARY)
    )
    generate(engine, PROMPTS, LONG)
    assert check_every_draft(watcher, [definition, Definition(block, target)]) > 70


def test_what_was_missed_is_computed_in_passes_of_bounded_size(target, net, definition, monkeypatch):
    monkeypatch.setattr("specsim.live.drafters.target_features.MOST_TOKENS", 6)
    monkeypatch.setattr("specsim.live.drafters.live_eagle.MOST_TOKENS", 6)
    engine, watcher = trained_engine(target, [as_arm(net)], [3, 0, 0], acceptor=Generous(VOCABULARY))
    sizes = []
    run = engine.drafters[0]._extend.run
    monkeypatch.setattr(engine.drafters[0]._extend, "run", lambda rows: (sizes.append(rows.total), run(rows))[1])
    generate(engine, PROMPTS, LONG)
    assert max(sizes) == 6
    assert check_every_draft(watcher, [definition]) > 25


def test_near_its_context_limit_a_head_drafts_less_and_then_nothing(make_target):
    """CASES 15: a drafter that reads 512 positions, after 509 tokens."""
    target = make_target(eos_token_id=None, max_position_embeddings=1024)
    net = eagle_net(target, shape=shape_of(target, max_positions=512))
    engine, watcher = trained_engine(
        target, [as_arm(net)], [7], max_depth=7, max_model_len=1024, block_size=64, acceptor=Generous(VOCABULARY)
    )
    positions = []
    net.rope.register_forward_pre_hook(lambda _, args: positions.append(int(args[1].max())))
    generate(engine, [np.resize(np.arange(2, 50), 508), PROMPTS[0]], SamplingParams(max_tokens=12))
    rooms = [
        (len(text), int(step.seen.num_drafts[row]))
        for step, _, texts in watcher.steps
        for row, text in enumerate(texts)
    ]
    assert rooms[0] == (509, 3)
    assert all(count == max(0, min(7, 512 - length)) for length, count in rooms)
    assert any(length > 512 for length, _ in rooms)
    assert max(positions) <= 511
    positions.clear()
    check_every_draft(watcher, [Definition(net, target)])


def test_a_batch_all_beyond_the_context_limit_costs_no_pass(make_target):
    target = make_target(eos_token_id=None)
    net = eagle_net(target, shape=shape_of(target, max_positions=32))
    engine, watcher = trained_engine(target, [as_arm(net)], [3])
    calls = []
    net.register_forward_pre_hook(lambda *_: calls.append(1))
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
    "dspark:score=shifted_prob",
    "tetris:capacity=6",
]
PRICES = table(["LiveEagle"], 2e-5)
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
    engine = build_engine(small, spec, [as_arm(eagle_net(small))], cost=PRICES)
    requests = generate(engine, PAIRS, params)
    assert [request.token_ids for request in requests] == [output.token_ids.tolist() for output in expected]
    assert engine.tally.finish().num_accepted > 0


def test_a_head_of_another_target_is_refused_in_one_line(target, make_target):
    wide = make_target(hidden_size=24, eos_token_id=None)
    message = refusal(lambda: trained_engine(target, [as_arm(eagle_net(wide))], [3]))
    assert message == "drafter 'LiveEagle' was made for a target with hidden states of 24; 'tiny' has 48"
    other = eagle_net(target, vocab_size=60)
    message = refusal(lambda: trained_engine(target, [as_arm(other)], [3]))
    assert message == "drafter 'LiveEagle' was made for a target with vocabulary of 60; 'tiny' has 50"
    deep = eagle_net(target, feature_layers=(0, 1, 4))
    assert "feature layers (0, 1, 4)" in refusal(lambda: trained_engine(target, [as_arm(deep)], [3]))


def test_the_hint_of_its_cost_counts_what_a_pass_reads(target):
    """An embedding is looked up, not read; a head of its own is read instead of the target's."""
    plain_net, own = eagle_net(target), eagle_net(target, draft_vocab_size=20, own_embedding=True)
    shares = [
        trained_engine(target, [as_arm(net)], [3])[0].drafters[0].spec.target_fraction for net in (plain_net, own)
    ]
    assert 0 < shares[1] < shares[0]
