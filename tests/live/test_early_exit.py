"""Early exit: all positions drafted as one tree must propose what each position alone would."""

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from specsim.errors import InputError
from specsim.live.drafters import early_exit
from specsim.live.drafters.early_exit import EarlyExit, first_layers
from specsim.live.models import cache_keyword
from specsim.live.recorder import judge

DEPTH = 5
PROMPT, OUTPUT = 9, 23


@pytest.fixture
def text(rng):
    return rng.integers(2, 50, PROMPT), rng.integers(2, 50, OUTPUT)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def naive(model, num_layers, prompt, output, depth):
    """Token, probability and margin of every draft, one full forward pass without a cache for each."""
    exit_model = first_layers(model, num_layers)
    rows = []
    for position in range(len(output)):
        ids = [*prompt, *output[:position]]
        for _ in range(depth):
            with torch.inference_mode():
                logits = exit_model(torch.tensor([ids]), use_cache=False).logits[0, -1].double()
            lead = logits.topk(2).values
            rows.append((int(logits.argmax()), float(logits.softmax(-1).max()), float(lead[0] - lead[1])))
            ids.append(rows[-1][0])
    columns = zip(*rows, strict=True)
    return [np.array(column).reshape(len(output), depth) for column in columns]


@pytest.mark.parametrize("at_once", [256, 7], ids=["one chunk", "chunks of 7 positions"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-6)])
def test_the_tree_proposes_exactly_what_each_position_alone_would(
    make_target, text, dtype, tolerance, at_once, monkeypatch
):
    monkeypatch.setattr(early_exit, "POSITIONS_AT_ONCE", at_once)
    target = make_target(dtype)
    proposals = EarlyExit(target, 2, DEPTH).propose_everywhere(*text)
    token_ids, confidence, margin = naive(target.model, 2, *text, DEPTH)
    assert len(np.unique(token_ids)) > 10  # a model stuck on one token would prove nothing
    np.testing.assert_array_equal(proposals.token_ids, token_ids)
    np.testing.assert_allclose(proposals.confidence, confidence, rtol=0, atol=tolerance)
    np.testing.assert_allclose(proposals.margin, margin, rtol=0, atol=10 * tolerance)


def test_a_block_of_one_draft_needs_the_text_alone(make_target, text, monkeypatch):
    monkeypatch.setattr(early_exit, "POSITIONS_AT_ONCE", 7)
    target = make_target()
    proposals = EarlyExit(target, 2, 1).propose_everywhere(*text)
    np.testing.assert_array_equal(proposals.token_ids, naive(target.model, 2, *text, 1)[0])


def test_a_batch_drafts_what_the_tree_does(make_target, rng):
    """The seam a live engine drafts by: requests of one length, each from its last token."""
    target = make_target()
    drafter = EarlyExit(target, 2, DEPTH)
    texts = rng.integers(2, 50, (3, 12))
    cache = DynamicCache(config=drafter.model.config)
    with torch.inference_mode():
        drafter.model(torch.from_numpy(texts[:, :-1]), use_cache=True, **{cache_keyword(drafter.model): cache})
        token_ids, confidence = drafter.draft(cache, torch.from_numpy(texts[:, -1]), DEPTH)
    for row, text in enumerate(texts):
        alone = drafter.propose_everywhere(text, np.array([5]))
        np.testing.assert_array_equal(token_ids[row].numpy(), alone.token_ids[0])
        np.testing.assert_allclose(confidence[row].numpy(), alone.confidence[0], rtol=0, atol=1e-12)


def test_layers_after_the_exit_are_never_run(make_target, text):
    target = make_target()
    before = EarlyExit(target, 2, DEPTH).propose_everywhere(*text)
    for layer in target.model.model.layers[2:]:
        for weight in layer.parameters():
            weight.data.fill_(float("nan"))
    after = EarlyExit(target, 2, DEPTH).propose_everywhere(*text)
    np.testing.assert_array_equal(after.token_ids, before.token_ids)
    np.testing.assert_array_equal(after.confidence, before.confidence)


def test_the_exit_shares_the_targets_weights_and_leaves_the_target_whole(make_target):
    model = make_target().model
    exit_model = first_layers(model, 3)
    assert len(model.model.layers) == model.config.num_hidden_layers == 4
    assert len(exit_model.model.layers) == exit_model.config.num_hidden_layers == 3
    theirs = {weight.data_ptr() for weight in model.parameters()}
    assert all(weight.data_ptr() in theirs for weight in exit_model.parameters())


def test_an_exit_that_equals_the_target_has_every_draft_accepted(make_target, rng):
    """CASES 8: the last layer adds nothing, so the exit before it is the target; also after full acceptance."""
    from specsim.live.greedy import decode_greedy

    target = make_target()
    last = target.model.model.layers[-1]
    for weight in (last.self_attn.o_proj.weight, last.mlp.down_proj.weight):
        weight.data.zero_()
    prompt = rng.integers(2, 50, PROMPT)
    output = decode_greedy(target, [prompt], 30)[0].token_ids
    blocks = judge(EarlyExit(target, 3, DEPTH).propose_everywhere(prompt, output), output, token_ids=True)
    np.testing.assert_array_equal(blocks.num_accepted, np.minimum(DEPTH, len(output) - np.arange(len(output))))


def test_drafts_stop_at_the_context_limit(make_target, text):
    """CASES 15: no index past the last one, fewer drafts close to it, then none."""
    target = make_target(max_position_embeddings=PROMPT + OUTPUT)
    seen = []
    rotary = target.model.model.rotary_emb
    rotary.register_forward_pre_hook(lambda _, __, named: seen.append(named["position_ids"].max()), with_kwargs=True)
    proposals = EarlyExit(target, 2, DEPTH).propose_everywhere(*text)
    assert max(seen) == PROMPT + OUTPUT - 1
    room = OUTPUT - np.arange(OUTPUT)
    np.testing.assert_array_equal(proposals.num_drafts, np.minimum(DEPTH, room))
    wide = EarlyExit(make_target(), 2, DEPTH).propose_everywhere(*text)
    inside = np.arange(DEPTH) < proposals.num_drafts[:, None]
    np.testing.assert_array_equal(proposals.token_ids[inside], wide.token_ids[inside])
    assert (proposals.token_ids[~inside] == -1).all()
    assert (proposals.confidence[~inside] == 0).all()


@pytest.mark.parametrize("layers", [0, 4, 9])
def test_an_exit_the_target_does_not_have_is_refused_with_the_allowed_layers(make_target, layers):
    with pytest.raises(InputError, match=rf"exit{layers}.*4 layers.*layer 1 to 3"):
        EarlyExit(make_target(), layers, DEPTH)


def test_the_cost_hint_is_the_share_of_weights_read_the_head_in_both(make_target):
    model = make_target().model
    layer = sum(weight.numel() for weight in model.model.layers[0].parameters())
    head = model.lm_head.weight.numel()
    hint = EarlyExit(make_target(), 3, DEPTH).spec.target_fraction
    assert hint == pytest.approx((3 * layer + head) / (4 * layer + head), abs=1e-4)
