"""Prompt lookup: what is copied, and what its confidence is made of."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.live.drafters.ngram import Ngram

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=40).map(np.array)


def propose(text, depth=4):
    return Ngram(depth).propose(np.array(text))


def test_the_longest_matching_ngram_wins_over_a_later_shorter_one():
    token_ids, _ = propose([1, 2, 3, 7, 8, 9, 3, 5, 1, 2, 3], depth=3)
    assert token_ids.tolist() == [7, 8, 9]


def test_of_several_occurrences_the_most_recent_is_copied():
    token_ids, _ = propose([1, 2, 7, 1, 2, 8, 1, 2], depth=3)
    assert token_ids.tolist() == [8, 1, 2]


def test_a_text_that_never_repeated_proposes_nothing():
    token_ids, confidence = propose([1, 2, 3, 4])
    assert len(token_ids) == len(confidence) == 0


def test_a_single_token_proposes_nothing():
    assert len(propose([1])[0]) == 0


def test_a_copy_that_reaches_the_end_of_the_text_goes_round_its_loop():
    token_ids, _ = propose([9, 1, 2, 3, 1, 2, 3], depth=7)
    assert token_ids.tolist() == [1, 2, 3, 1, 2, 3, 1]


def test_confidence_by_hand():
    # The bigram (1, 2) occurred twice; the later one is copied, and agrees with the end for 2 tokens.
    # Draft 1 (token 4): the other occurrence went on with 3, so (0 + 2/4) / (1 + 1).
    # Draft 2 (token 1): no other occurrence agreed so far, so the prior of 3 matching tokens, 3/5.
    token_ids, confidence = propose([1, 2, 3, 1, 2, 4, 1, 2], depth=2)
    assert token_ids.tolist() == [4, 1]
    assert confidence.tolist() == [0.25, 0.6]


def test_an_occurrence_that_agrees_raises_the_confidence():
    # Three occurrences of token 1 (no longer match): the two others went on with 5 and 6, the copied one with 5.
    _, confidence = propose([2, 1, 5, 3, 1, 6, 4, 1, 5, 0, 1], depth=1)
    assert confidence[0] == pytest.approx((1 + 1 / 3) / 3)


def test_an_occurrence_is_no_evidence_beyond_the_end_of_the_text():
    # Six equal tokens: the trigram ended after 3, 4 and 5 of them; the last is copied, and 5 tokens agree before it.
    # The others are followed for 3 and 2 known tokens, then by none.
    _, confidence = propose([5] * 6, depth=4)
    expected = [(2 + 5 / 7) / 3, (2 + 6 / 8) / 3, (1 + 7 / 9) / 2, 8 / 10]
    np.testing.assert_allclose(confidence, expected, rtol=0, atol=1e-15)


@given(TEXTS)
def test_confidence_equals_its_definition_spelled_out(text):
    depth = 6
    token_ids, confidence = Ngram(depth).propose(text)
    starts = []
    for length in (3, 2, 1):
        tail = tuple(text[-length:])
        starts = [i + length for i in range(len(text) - length) if tuple(text[i : i + length]) == tail]
        if len(tail) == length and starts:
            break
        starts = []
    assert (len(token_ids) > 0) == bool(starts)
    for k in range(len(token_ids)):
        match = 0
        while match < min(starts[-1], 32) and text[starts[-1] - 1 - match] == text[-1 - match]:
            match += 1
        agreeing = [s for s in starts[:-1] if all(s + j < len(text) and text[s + j] == token_ids[j] for j in range(k))]
        trials = [s for s in agreeing if s + k < len(text)]
        hits = [s for s in trials if text[s + k] == token_ids[k]]
        prior = (match + k) / (match + k + 2)
        assert confidence[k] == pytest.approx((len(hits) + prior) / (len(trials) + 1), abs=1e-12)


@given(TEXTS, st.data())
def test_a_proposal_depends_on_the_text_before_it_alone(text, data):
    prompt, output = text[:1], text[1:]
    position = data.draw(st.integers(0, len(output)))
    changed = output.copy()
    changed[position:] = 9
    if len(output) == 0:
        return
    one, other = (Ngram(5).propose_everywhere(prompt, tokens) for tokens in (output, changed))
    for name in ("token_ids", "num_drafts", "confidence"):
        np.testing.assert_array_equal(getattr(one, name)[: position + 1], getattr(other, name)[: position + 1])


@given(TEXTS)
def test_rows_are_padded_beyond_their_drafts(text):
    proposals = Ngram(5).propose_everywhere(text[:1], text)
    beyond = np.arange(5) >= proposals.num_drafts[:, None]
    assert (proposals.token_ids[beyond] == -1).all()
    assert (proposals.confidence[beyond] == 0).all()
    assert ((proposals.confidence[~beyond] > 0) & (proposals.confidence[~beyond] < 1)).all()
