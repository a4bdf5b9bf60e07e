"""What a caller may ask of the engine and be told by it: limits, texts, cancellation, failure, refusals."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from specsim.errors import InputError
from specsim.live.sampling import SamplingParams
from tests.live.byte_tokenizer import END, byte_tokenizer
from tests.live.engine.engines import build_engine, check_all_is_given_back, generate, refusal, some_prompts
from tests.live.engine.scripts import Script, play, scripted_engine

PROMPTS = some_prompts()
TOKENIZER = byte_tokenizer()
AFTER = [5] * 40


def tokens_of(text):
    return TOKENIZER.encode(text, add_special_tokens=False)


def said(target, text, depth=4, **options):
    """The request whose output is a text, followed by others; every draft is right."""
    engine = scripted_engine(target, [Script([*tokens_of(text), *AFTER])], depth)
    chunks = []
    request = engine.submit([3, 4], SamplingParams(seed=0, **options), on_chunk=chunks.append)
    engine.run()
    check_all_is_given_back(engine)
    assert "".join(chunk.text for chunk in chunks) == request.text
    assert [token for chunk in chunks for token in chunk.token_ids] == request.token_ids
    assert [chunk.finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + [request.finish_reason]
    return request, chunks


def test_every_request_has_limits_laws_and_a_seed_of_its_own(endless):
    params = [
        SamplingParams(1),
        SamplingParams(9, 0.8, seed=3),
        SamplingParams(4, 1.3, top_k=5),
        SamplingParams(17, 0.7, top_p=0.5, seed=3),
    ]
    requests = generate(build_engine(endless, "dcut@exit2", ["exit2"]), PROMPTS[:4], params)
    assert [len(request.token_ids) for request in requests] == [1, 9, 4, 17]
    assert {request.finish_reason for request in requests} == {"length"}
    alone = [generate(build_engine(endless), [PROMPTS[index]], params[index])[0].token_ids for index in (0, 1, 3)]
    assert alone == [requests[index].token_ids for index in (0, 1, 3)]


def test_a_stop_text_across_tokens_and_inside_a_block_ends_the_output_and_is_cut(speaking):
    request, chunks = said(speaking, "hello STOP and more", stop=("STOP", "never"))
    assert (request.text, request.finish_reason) == ("hello ", "stop")
    assert request.token_ids == tokens_of("hello STOP")
    assert len(chunks) < len(request.token_ids)  # blocks of several tokens were committed at once


def test_a_stop_text_ends_the_output_at_the_same_token_whatever_the_depth(speaking):
    ends = {depth: said(speaking, "aabaaba##", depth, stop=("aab",), max_tokens=9)[0].token_ids for depth in (1, 2, 7)}
    assert set(map(tuple, ends.values())) == {tuple(tokens_of("aab"))}


def test_what_may_become_a_stop_text_is_not_told_before_it_is_sure(speaking):
    request, chunks = said(speaking, "a#b##c", depth=1, stop=("###",), max_tokens=6)
    told = [chunk.text for chunk in chunks]
    assert not any(text.endswith("#") for text in told[:-1])
    assert request.text == "a#b##c"


def test_characters_split_over_tokens_are_told_whole(speaking):
    text = "é😀-한글"
    request, chunks = said(speaking, text, depth=1, max_tokens=len(tokens_of(text)))
    assert request.text == text
    assert not any("�" in chunk.text for chunk in chunks)
    cut, _ = said(speaking, text, max_tokens=3)
    assert cut.text == TOKENIZER.decode(tokens_of(text)[:3]) == "é�"


def test_a_stop_token_has_no_text_and_is_an_ordinary_token_when_it_is_ignored(speaking):
    script = Script([*tokens_of("ab"), END, *tokens_of("cd"), *AFTER])
    for ignore, text, count in ((False, "ab", 3), (True, "abcd", 5)):
        engine = scripted_engine(speaking, [script], depth=4)
        request = engine.submit([3], SamplingParams(5, seed=0, ignore_eos=ignore), want_text=True)
        engine.run()
        assert (request.text, len(request.token_ids)) == (text, count)
        assert request.finish_reason == ("length" if ignore else "stop")


def test_no_text_is_kept_for_a_request_that_asked_for_none(speaking):
    (request,) = play(scripted_engine(speaking, [Script([*tokens_of("abc"), *AFTER])], 2), [[3]], max_tokens=3)
    assert (request.text, request.token_ids) == ("", tokens_of("abc"))


def test_cancelling_ends_waiting_and_running_requests_and_nobody_else(endless):
    expected = [request.token_ids for request in generate(build_engine(endless), PROMPTS, SamplingParams(12))]
    engine = build_engine(endless, "fixed_depth@exit2", ["exit2"], max_num_seqs=3)
    chunks = []
    requests = [engine.submit(prompt, SamplingParams(12), on_chunk=chunks.append) for prompt in PROMPTS]
    engine.step()
    engine.step()
    running, waiting = requests[1], requests[4]
    for request in (running, waiting, waiting):
        engine.cancel(request)
    had = list(running.token_ids)
    engine.run()
    check_all_is_given_back(engine)
    assert (running.status, running.token_ids) == ("cancelled", had)
    assert 0 < len(had) < 12
    assert (waiting.finish_reason, waiting.token_ids) == ("cancelled", [])
    assert [chunk.request_id for chunk in chunks if chunk.finish_reason == "cancelled"] == [1, 4]
    for index in (0, 2, 3, 5):
        assert requests[index].token_ids == expected[index]
    engine.cancel(requests[0])
    assert engine.step() is False
    assert requests[0].finish_reason == "length"


def test_cancelling_a_preempted_request_finds_it_in_the_queue(endless):
    engine = build_engine(endless, "fixed_depth", max_num_seqs=4, num_kv_blocks=14)
    requests = [engine.submit(prompt, SamplingParams(20)) for prompt in PROMPTS[:4]]
    while not any(request.num_preemptions for request in requests):
        assert engine.step()
    preempted = next(request for request in requests if request in engine.scheduler.waiting and request.num_preemptions)
    engine.cancel(preempted)
    engine.run()
    check_all_is_given_back(engine)
    assert preempted.finish_reason == "cancelled"
    assert sum(request.finish_reason == "length" for request in requests) == 3


def test_everything_may_be_cancelled_and_time_does_not_run_on(endless):
    engine = build_engine(endless)
    now = [1.0]
    engine.clock.now = lambda: now[0]
    request = engine.submit([3, 4], SamplingParams(50))
    engine.step()
    engine.cancel(request)
    assert engine.step() is False
    check_all_is_given_back(engine)
    now[0] = 100.0  # a long pause
    later = engine.submit([3, 4], SamplingParams(1))
    engine.run()
    assert later.admitted_at == later.arrived_at == 100.0
    assert engine.tally.finish().host_seconds < 1.0


def test_requests_may_come_from_within_a_callback_and_after_a_pause(endless):
    engine = build_engine(endless, "fixed_depth@exit1", ["exit1"])
    expected = [request.token_ids for request in generate(build_engine(endless), PROMPTS[:2], SamplingParams(6))]
    children = []

    def on_chunk(chunk):
        if chunk.finish_reason:
            children.append(engine.submit(PROMPTS[1], SamplingParams(6)))

    for _ in range(2):
        parent = engine.submit(PROMPTS[0], SamplingParams(6), on_chunk=on_chunk)
        engine.run()
        check_all_is_given_back(engine)
        assert (parent.token_ids, children[-1].token_ids) == (expected[0], expected[1])
    assert [request.request_id for request in engine.ended] == [0, 1, 2, 3]


def poisoned(make_target, token):
    """A target for which one token means NaN."""
    target = make_target("float64", eos_token_id=None)
    target.model.get_input_embeddings().weight.data[token] = torch.nan
    return replace(target, tokenizer=None)


POISON = 49


@pytest.mark.parametrize("spec", ["autoregressive", "fixed_depth@round_robin", "dcut@round_robin"])
def test_case_5_a_request_without_a_law_fails_by_name_and_the_others_go_on(make_target, endless, spec):
    expected = [request.token_ids for request in generate(build_engine(endless), PROMPTS, SamplingParams(12))]
    assert not any(POISON in prompt for prompt in PROMPTS)
    assert not any(POISON in tokens for tokens in expected)
    prompts = list(PROMPTS)
    prompts[2] = np.array([4, POISON, 6, 7])
    for limits in ({}, {"max_num_seqs": 6}, {"max_num_batched_tokens": 26}):
        engine = build_engine(poisoned(make_target, POISON), spec, ["ngram", "exit2"], **limits)
        requests = generate(engine, prompts, SamplingParams(12))
        failed = requests.pop(2)
        assert failed.finish_reason == "failed"
        assert failed.error == "request 2: the law at output position 0 holds NaN"
        assert failed.token_ids == []
        assert [request.token_ids for request in requests] == expected[:2] + expected[3:]
        assert all(torch.isfinite(pool).all() for pool in (*engine.setup.kv.keys, *engine.setup.kv.values))


def test_case_5_a_law_that_breaks_in_the_middle_of_an_output_fails_there(make_target, endless):
    plain = generate(build_engine(endless), PROMPTS, SamplingParams(12))
    tokens = plain[0].token_ids
    place = next(index for index, token in enumerate(tokens) if index > 1 and token not in tokens[:index])
    target = poisoned(make_target, tokens[place])
    prompts = [PROMPTS[0], [11, 12]]
    engine = build_engine(target)
    failed, _ = generate(engine, prompts, SamplingParams(12))
    assert failed.error == f"request 0: the law at output position {place + 1} holds NaN"
    assert failed.token_ids == tokens[: place + 1]


ENDS = {
    "nothing ends it before": ([4, 5, 6, 7], 20, "failed", [4, 5, 6]),
    "a stop token before it": ([4, 5, END, 7], 20, "stop", [4, 5, END]),
    "the limit before it": ([4, 5, 6, 7], 3, "length", [4, 5, 6]),
}


@pytest.mark.parametrize(("tokens", "limit", "reason", "output"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_what_comes_before_a_law_that_is_none_is_output_whatever_the_depth(
    speaking, depth, tokens, limit, reason, output
):
    engine = scripted_engine(speaking, [Script([*tokens, *AFTER], broken=3)], depth)
    (request,) = play(engine, [[7, 8]], max_tokens=limit)
    assert (request.finish_reason, request.token_ids) == (reason, output)
    assert request.error == ("request 0: the law at output position 3 holds NaN" if reason == "failed" else None)
    check_all_is_given_back(engine)


REFUSED_PROMPTS = {
    "empty": ([], "at least one"),
    "no integers": ([1.5, 2.0], "list of token ids"),
    "truth values": ([True, False], "list of token ids"),
    "two axes": ([[1, 2]], "list of token ids"),
    "negative": ([3, -1], "token id -1 in a prompt: must be from 0 to 49"),
    "outside the vocabulary": ([3, 50], "token id 50 in a prompt: must be from 0 to 49"),
    "too long": ([3] * 96, "a prompt of 96 tokens leaves no room under max_model_len 96"),
}


@pytest.mark.parametrize(("prompt", "told"), REFUSED_PROMPTS.values(), ids=REFUSED_PROMPTS)
def test_a_prompt_is_refused_that_is(endless, prompt, told):
    engine = build_engine(endless)
    assert told in refusal(lambda: engine.submit(prompt))
    assert engine.step() is False
    assert engine.submit([3]).request_id == 0  # a refused request takes no number


def test_the_longest_prompt_gets_one_token(endless):
    (request,) = generate(build_engine(endless, "fixed_depth"), [[3] * 95], SamplingParams(50))
    assert (len(request.token_ids), request.finish_reason) == (1, "length")


def test_a_request_that_no_empty_cache_would_hold_is_refused(endless):
    engine = build_engine(endless, num_kv_blocks=4)
    assert "request 0 needs 5 KV blocks" in refusal(lambda: engine.submit([3] * 4, SamplingParams(8)))
    assert len(generate(engine, [[3] * 4], SamplingParams(7))[0].token_ids) == 7


def test_stop_texts_without_a_tokenizer_are_refused(endless):
    with pytest.raises(InputError, match="stop texts need a tokenizer"):
        build_engine(endless).submit([3], SamplingParams(stop=("x",)))


def test_an_engine_whose_parts_do_not_fit_is_refused(endless):
    assert "max_num_batched_tokens is 20" in refusal(lambda: build_engine(endless, max_num_batched_tokens=20))
    assert "a live engine computes prompts" in refusal(lambda: build_engine(endless, prefill="excluded"))
    engine = build_engine(endless)
    setup, config = engine.setup, engine.config
    with pytest.raises(InputError, match="other drafters"):
        type(engine)(setup, [], engine.controller, engine.cost, config)
