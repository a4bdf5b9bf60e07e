"""Prompt lookup of a whole batch: the definition's proposals, and its confidences in bits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.live.drafters.batch import DraftBatch
from specsim.live.drafters.live_ngram import LiveNgram
from specsim.live.drafters.ngram import LONGEST_MATCH, Ngram
from specsim.live.drafters.ngram_batch import draft_by_lookup, look_up

MARK = -7
"""What stands in histories where nothing was written."""


def batch_of(texts, room, device="cpu", width=None):
    """A step over texts, each in the slot of its number counted from the end; two slots are somebody else's."""
    num = len(texts)
    width = width or max(map(len, texts)) + 20
    history = np.full((num + 2, width), MARK, np.int64)
    slots = np.arange(num)[::-1] + 1
    for slot, text in zip(slots, texts, strict=True):
        history[slot, : len(text)] = text
    lengths, room = np.array([len(text) for text in texts], np.int64), np.array(room, np.int64)
    there = [torch.from_numpy(values.copy()).to(device) for values in (slots, lengths, room)]
    zeros = torch.zeros(num, device=device)
    return DraftBatch(
        slots.copy(), lengths, room, *there, torch.from_numpy(history).to(device), zeros, zeros.long(), zeros.long()
    )


def check_same(texts, room, depth, max_depth, device="cpu", **options):
    """The batch's look-up writes and says what the definition does, one request after the other."""
    expected, found = batch_of(texts, room), batch_of(texts, room, device)
    by_each = LiveNgram(max_depth).draft(expected, depth)
    at_once = draft_by_lookup(found, depth, max_depth, **options)
    assert at_once.num_drafts.tolist() == by_each.num_drafts.tolist()
    assert torch.equal(found.history.cpu(), expected.history)
    scores, wanted = at_once.scores["drawn_prob"].cpu(), by_each.scores["drawn_prob"]
    assert scores.dtype == wanted.dtype == torch.float64
    assert scores.numpy().tobytes() == wanted.numpy().tobytes()
    assert scores.float().double().equal(scores)
    assert at_once.log_prob is None
    return at_once


@st.composite
def steps(draw):
    alphabet = draw(st.integers(1, 4))
    texts = draw(st.lists(st.lists(st.integers(0, alphabet), min_size=1, max_size=50), min_size=1, max_size=6))
    room = draw(st.lists(st.integers(0, 9), min_size=len(texts), max_size=len(texts)))
    return texts, room, draw(st.integers(1, 8)), draw(st.integers(1, 8)), draw(st.sampled_from([1, 200, 2**24]))


@settings(max_examples=150, deadline=None)
@given(steps())
def test_a_batch_is_looked_up_as_its_requests_one_by_one(step):
    texts, room, depth, max_depth, most = step
    check_same(texts, room, depth, max_depth, most_elements=most)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=120), st.integers(1, 15))
def test_confidences_are_the_definitions_before_rounding_too(text, depth):
    tokens, scores = Ngram(depth).propose(np.array(text))
    token_ids, found, confidence = look_up(torch.tensor([text]), torch.tensor([len(text)]), depth)
    assert bool(found[0]) == bool(len(tokens))
    if len(tokens):
        assert token_ids[0].tolist() == tokens.tolist()
        assert confidence[0].numpy().tobytes() == scores.tobytes()


def test_loops_whose_copies_outrun_the_text_are_looked_up_alike():
    texts = [np.resize(np.arange(period), size).tolist() for period in (1, 2, 3, 5) for size in (2, 6, 11, 40)]
    check_same(texts, [8] * len(texts), 8, 8)


def test_a_long_agreement_counts_up_to_its_limit():
    for agreement in (LONGEST_MATCH - 1, LONGEST_MATCH, LONGEST_MATCH + 1, LONGEST_MATCH + 9):
        block = list(range(10, 10 + agreement))
        check_same([[1, *block, 2, 3, 4, *block]], [5], 5, 5)


def test_what_lies_behind_a_text_is_not_read():
    """A drafts' leftovers behind the shorter text would be the more recent match."""
    long, short = [5] * 30, [1, 2, 3, 4, 1, 2]
    batch = batch_of([long, short], [4, 4])
    batch.history[1, len(short) : len(short) + 6] = torch.tensor([9, 1, 2, 9, 1, 2])
    draft_by_lookup(batch, 4, 4)
    assert batch.history[1, 6:10].tolist() == [3, 4, 1, 2]


def test_a_batch_that_is_divided_by_its_memory_says_the_same():
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 3, size).tolist() for size in (40, 3, 17, 60, 1)]
    for most in (1, 60 * 5, 2 * 60 * 5, 10**9):
        check_same(texts, [5, 0, 5, 2, 5], 5, 5, most_elements=most)


def test_an_empty_batch_proposes_nothing():
    nothing = torch.zeros(0, dtype=torch.int64)
    none = np.zeros(0, np.int64)
    history = torch.zeros((1, 4), dtype=torch.int64)
    batch = DraftBatch(none, none, none, nothing, nothing, nothing, history, nothing.float(), nothing, nothing)
    drafted = draft_by_lookup(batch, 3, 3)
    assert drafted.scores["drawn_prob"].shape == (0, 3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_nothing_is_read_by_the_host_and_nothing_differs():
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, 4, size).tolist() for size in rng.integers(1, 300, 33)]
    room = rng.integers(0, 9, 33).tolist()
    check_same(texts, room, 8, 8, "cuda")
    drafter, batch = LiveNgram(8, "cuda"), batch_of(texts, room, "cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        drafter.draft(batch, 8)
    finally:
        torch.cuda.set_sync_debug_mode("default")
