"""A smaller model as drafter: its cache follows the request whatever is accepted, and its tokens are the target's."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.live.drafters.live_model import check_same_tokens
from specsim.live.greedy import decode_greedy
from specsim.live.sampling import SamplingParams
from tests.live.drafters.scripted import as_drafter, check_drafts, continuation, plain, scripted_engine, wobbled
from tests.live.engine.engines import check_all_is_given_back, generate, refusal, some_prompts

PROMPTS = some_prompts()
GREEDY = SamplingParams(max_tokens=20)


@pytest.fixture(scope="module")
def target(make_target):
    return make_target(eos_token_id=None)


@pytest.fixture(scope="module")
def near(target):
    """A drafter that is right often."""
    return wobbled(target)


@pytest.fixture(scope="module")
def near_plain(near):
    return plain(near)


@pytest.fixture(scope="module")
def small(make_target):
    """A drafter of another shape, that knows nothing of the target."""
    return replace(make_target(num_hidden_layers=2, hidden_size=24, num_attention_heads=3, num_key_value_heads=1,
                               seed=4), name="small")  # fmt: skip


@pytest.fixture(scope="module")
def expected(target):
    copy = replace(target, model=plain(target))
    return {tuple(p.tolist()): decode_greedy(copy, [p], 40)[0].token_ids.tolist() for p in PROMPTS}


def right(request, expected):
    whole = expected[tuple(request.prompt.tolist())]
    return request.token_ids == whole[: len(request.token_ids)] and len(request.token_ids) == request.params.max_tokens


@pytest.mark.parametrize("depth", [1, 4, 8])
def test_a_drafter_that_is_the_target_has_every_draft_accepted_at_every_step(target, depth):
    engine, watcher = scripted_engine(target, [as_drafter(target)], [depth], max_depth=depth)
    generate(engine, PROMPTS, SamplingParams(max_tokens=30))
    for step, emission, _ in watcher.steps:
        full = emission.num_emitted == step.verified + 1  # the last step of a request may be cut short
        assert full.sum() + (emission.num_emitted <= step.verified).sum() == len(full)
        assert (emission.num_accepted[full] == depth).all()
        assert (step.seen.num_drafts == depth).all()
    assert len(watcher.steps) <= 2 * (30 // (depth + 1) + 2)


def test_after_plain_steps_every_draft_is_accepted_again_and_what_was_missed_is_charged(target):
    engine, watcher = scripted_engine(target, [as_drafter(target)], [3, 0, 0, 3])
    generate(engine, PROMPTS[:1], SamplingParams(max_tokens=11))
    accepted = [emission.num_accepted.tolist() for _, emission, _ in watcher.steps]
    assert accepted == [[3], [0], [0], [3]]
    missed = [step.missed for step, _, _ in watcher.steps]
    assert missed == [len(PROMPTS[0]) + 1, 0, 0, 2]
    assert watcher.steps[3][0].switch_price > 0


def test_drafts_are_the_models_own_whatever_was_accepted_before(target, near, near_plain, expected):
    engine, watcher = scripted_engine(target, [as_drafter(near)], [4])
    requests = generate(engine, PROMPTS, GREEDY)
    assert all(right(request, expected) for request in requests)
    assert check_drafts(watcher, near_plain) > 50
    accepted = np.concatenate([emission.num_accepted for _, emission, _ in watcher.steps])
    assert set(accepted.tolist()) >= {0, 1, 4}  # rejections at once and later, and full acceptance


def test_plain_steps_after_a_rejection_do_not_make_rejected_drafts_part_of_the_cache(target, near, near_plain):
    engine, watcher = scripted_engine(target, [as_drafter(near)], [4, 0, 0])
    generate(engine, PROMPTS, SamplingParams(max_tokens=36))
    assert check_drafts(watcher, near_plain) > 50


def test_what_was_missed_is_computed_in_passes_of_bounded_size(target, near, near_plain):
    engine, watcher = scripted_engine(target, [as_drafter(near, most_tokens=6)], [2])
    sizes = []
    runner = engine.drafters[0]._runner
    run = runner.run
    runner.run = lambda rows, keep=None: (sizes.append(rows.total), run(rows, keep))[1]
    generate(engine, PROMPTS, GREEDY)
    assert max(sizes) == 6
    assert sum(sizes) > sum(len(prompt) for prompt in PROMPTS)
    check_drafts(watcher, near_plain)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    depths=st.lists(st.integers(0, 5), min_size=1, max_size=5),
    order=st.permutations(range(len(PROMPTS))),
    lengths=st.lists(st.integers(1, 14), min_size=6, max_size=6),
    blocks=st.sampled_from([None, 12, 16]),
    most_tokens=st.sampled_from([1, 5, 2048]),
    late=st.integers(0, 5),
)
def test_greedy_output_is_plain_decoding_and_drafts_are_the_models_own_in_any_batch(
    target, near, near_plain, expected, depths, order, lengths, blocks, most_tokens, late
):
    engine, watcher = scripted_engine(
        target, [as_drafter(near, most_tokens=most_tokens)], depths, num_kv_blocks=blocks, max_num_seqs=3
    )
    prompts = [PROMPTS[index] for index in order]
    params = [SamplingParams(max_tokens=length) for length in lengths]
    requests = [engine.submit(prompt, own) for prompt, own in zip(prompts[:3], params, strict=False)]
    for _ in range(late):
        engine.step()
    requests += [engine.submit(prompt, own) for prompt, own in zip(prompts[3:], params[3:], strict=True)]
    engine.run()
    check_all_is_given_back(engine)
    assert all(right(request, expected) for request in requests)
    check_drafts(watcher, near_plain)


def test_a_preempted_requests_cache_is_not_taken_for_another_ones(target, near, near_plain, expected):
    engine, watcher = scripted_engine(target, [as_drafter(near)], [3], num_kv_blocks=18)
    requests = generate(engine, PROMPTS, SamplingParams(max_tokens=24))
    assert engine.scheduler.num_preemptions > 0
    assert all(right(request, expected) for request in requests)
    assert check_drafts(watcher, near_plain) > 50


def test_switching_between_drafters_each_step_leaves_both_caches_right(target, near, near_plain, small, expected):
    engine, watcher = scripted_engine(
        target, [as_drafter(near), as_drafter(small)], [4, 2, 0, 3], arms=[0, 1, 1], max_num_seqs=3
    )
    requests = generate(engine, PROMPTS, SamplingParams(max_tokens=30))
    assert all(right(request, expected) for request in requests)
    assert check_drafts(watcher, near_plain, arm=0) > 30
    assert check_drafts(watcher, plain(small), arm=1) > 30


def test_no_token_of_an_up_to_date_request_is_computed_twice(target, near):
    """All passes of a drafter that never idles: each position once, and again only where a draft was rejected."""
    engine, watcher = scripted_engine(target, [as_drafter(near)], [4])
    fed = []
    runner = engine.drafters[0]._runner
    run = runner.run
    runner.run = lambda rows, keep=None: (fed.append((rows.starts.tolist(), rows.counts.tolist())), run(rows, keep))[1]
    generate(engine, PROMPTS[:1], GREEDY)
    firsts = [pass_ for pass_ in fed if pass_[1] != [1]]
    # The prompt; then two tokens after each full acceptance, one otherwise.
    full = sum(int(emission.num_accepted[0] == 4) for _, emission, _ in watcher.steps[:-1])
    assert firsts[0] == ([0], [len(PROMPTS[0])])
    assert [counts for _, counts in firsts[1:]] == [[2]] * full
    assert full > 0


def test_near_its_context_limit_a_drafter_drafts_less_and_then_nothing(make_target, target):
    narrow = replace(make_target(eos_token_id=None, max_position_embeddings=512), name="narrow")
    wide = make_target(eos_token_id=None, max_position_embeddings=1024)
    positions = []
    narrow.model.get_decoder().register_forward_pre_hook(
        lambda module, args, kwargs: positions.append(int(kwargs["position_ids"].max())), with_kwargs=True
    )
    engine, watcher = scripted_engine(wide, [as_drafter(narrow)], [7], max_depth=7, max_model_len=1024, block_size=64)
    prompt = np.resize(np.arange(2, 50), 508)
    generate(engine, [prompt, PROMPTS[0]], SamplingParams(max_tokens=9))
    drafted = [step.seen.num_drafts[0] for step, _, _ in watcher.steps]
    assert drafted[0] == 3  # of length 509
    assert drafted[-1] == 0 or len(drafted) < 3
    assert max(positions) <= 511
    lengths = [len(texts[0]) for _, _, texts in watcher.steps]
    assert drafted == [max(0, min(7, 512 - length)) if length > 100 else 7 for length in lengths]


def test_a_batch_all_beyond_the_context_limit_costs_no_pass(make_target):
    narrow = replace(make_target(eos_token_id=None, max_position_embeddings=32), name="narrow")
    wide = make_target(eos_token_id=None, seed=1)
    engine, watcher = scripted_engine(wide, [as_drafter(narrow)], [3])
    calls = []
    narrow.model.get_decoder().register_forward_pre_hook(lambda *_: calls.append(1))
    requests = generate(engine, [np.resize(np.arange(2, 50), 40)], SamplingParams(max_tokens=4))
    assert not calls
    assert len(requests[0].token_ids) == 4
    assert [int(step.seen.num_drafts.sum()) for step, _, _ in watcher.steps] == [0, 0, 0]


def test_drafts_beyond_the_targets_vocabulary_are_never_proposed(make_target, target):
    """The drafter's padding has the largest logits; without it, it is the target."""
    padded = make_target(eos_token_id=None, vocab_size=70)
    own = target.model.state_dict()
    with torch.no_grad():
        for name, weight in padded.model.named_parameters():
            if "embed_tokens" in name or "lm_head" in name:
                weight[:50] = own[name]
                weight[50:] = 50.0 * torch.sign(weight[50:])
            else:
                weight.copy_(own[name])
    engine, watcher = scripted_engine(target, [as_drafter(padded)], [4])
    generate(engine, PROMPTS[:3], GREEDY)
    assert len(target.model.get_output_embeddings().weight) == 50
    for step, emission, _ in watcher.steps:
        whole = emission.num_emitted == step.verified + 1
        assert (emission.num_accepted[whole] == 4).all()
        assert step.tokens.max() < 50
    engine, watcher = scripted_engine(target, [as_drafter(padded, "sampled")], [4])
    generate(engine, PROMPTS[:3], SamplingParams(max_tokens=12, temperature=1.0))
    assert max(step.tokens.max() for step, _, _ in watcher.steps) < 50


def test_a_token_of_the_targets_padding_can_be_read_by_a_drafter_that_lacks_it(make_target, make_model, target):
    wide = make_target(eos_token_id=None, vocab_size=80)
    with torch.no_grad():
        wide.model.lm_head.weight[:50] *= 0.01  # so that padding is what it says
    engine, _ = scripted_engine(wide, [as_drafter(wobbled(target))], [3])
    requests = generate(engine, PROMPTS[:3], GREEDY)
    assert all(token >= 50 for token in requests[0].token_ids)
    reference = decode_greedy(replace(wide, model=plain(wide)), PROMPTS[:3], 20)
    assert [request.token_ids for request in requests] == [output.token_ids.tolist() for output in reference]
    sampled = SamplingParams(max_tokens=12, temperature=1.0)
    engine, _ = scripted_engine(wide, [as_drafter(wobbled(target), "sampled")], [3])
    drawn = [token for request in generate(engine, PROMPTS[:3], sampled) for token in request.token_ids]
    assert max(drawn) >= 50


class Words:
    def __init__(self, *words):
        self.words = {word: index for index, word in enumerate(words)}

    def get_vocab(self):
        return self.words


def test_tokenizers_are_the_same_where_every_token_has_its_id(target):
    ours = replace(target, tokenizer=Words("a", "b", "c"), tokenizer_hash="x")
    check_same_tokens(replace(ours, tokenizer=Words("a", "b", "c"), tokenizer_hash="another chat template"), ours)
    other = replace(ours, name="d", tokenizer=Words("a", "c", "b"), tokenizer_hash="y")
    message = refusal(lambda: check_same_tokens(other, ours))
    assert "token 'b' is id 2 of the drafter and id 1 of the target (2 tokens differ)" in message
    longer = replace(ours, tokenizer=Words("a", "b", "c", "d"), tokenizer_hash="z")
    assert "token 'd' is id 3 of the drafter and no token" in refusal(lambda: check_same_tokens(longer, ours))


def test_a_drafter_without_tokenizer_is_refused_unless_the_target_has_none_either(target):
    none = replace(target, name="dummy", tokenizer=None, tokenizer_hash="")
    check_same_tokens(none, none)
    for pair in ((none, target), (target, none)):
        assert "'dummy' has no tokenizer" in refusal(lambda pair=pair: check_same_tokens(*pair))


def test_the_reference_of_these_tests_is_no_constant(target, near_plain):
    texts = [prompt.tolist() for prompt in PROMPTS]
    assert len({tuple(continuation(near_plain, text, 3)) for text in texts}) > 3
