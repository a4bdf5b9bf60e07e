"""Text grows token by token to what the tokenizer says of the whole, and ends where a stop text begins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.live.detokenizer import Detokenizer
from tests.live.byte_tokenizer import byte_tokenizer

TOKENIZER = byte_tokenizer()


def tokens_of(text):
    return TOKENIZER.encode(text, add_special_tokens=False)


def told(detokenizer, tokens):
    """All that is told while tokens come, and whether a stop text ended it."""
    pieces, stopped = [], False
    for token in tokens:
        stopped = detokenizer.add(token)
        if stopped:
            break
        pieces.append(detokenizer.news(finished=False))
    detokenizer.finish()
    pieces.append(detokenizer.news(finished=True))
    return pieces, stopped


@given(st.text(max_size=12))
def test_pieces_of_any_text_add_up_to_it_and_hold_whole_characters(text):
    detokenizer = Detokenizer(TOKENIZER, ())
    pieces, stopped = told(detokenizer, tokens_of(text))
    assert "".join(pieces) == detokenizer.text == text
    assert not stopped
    if "�" not in text:
        assert not any("�" in piece for piece in pieces)


def test_a_character_of_several_tokens_is_told_once_it_is_whole():
    pieces, _ = told(Detokenizer(TOKENIZER, ()), tokens_of("a😀ü"))
    assert pieces == ["a", "", "", "", "😀", "", "ü", ""]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_character_that_never_became_whole_is_the_replacement_character_at_the_end(cut):
    tokens = tokens_of("ok😀")[:-cut]
    detokenizer = Detokenizer(TOKENIZER, ())
    pieces, _ = told(detokenizer, tokens)
    assert detokenizer.text == "".join(pieces) == TOKENIZER.decode(tokens) == "ok�"


def test_bytes_that_are_no_character_do_not_hold_back_what_follows_for_ever():
    tokens = [tokens_of("😀")[0], *tokens_of("abc")]
    detokenizer = Detokenizer(TOKENIZER, ())
    told(detokenizer, tokens)
    assert detokenizer.text == TOKENIZER.decode(tokens)


@given(st.text("ab", max_size=10), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_the_text_ends_before_the_first_stop_text_and_nothing_of_it_was_told(text, stops):
    detokenizer = Detokenizer(TOKENIZER, tuple(stops))
    pieces, stopped = told(detokenizer, tokens_of(text))
    # The first to be complete ends the text: of those complete with the same character, the one that began first.
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    assert stopped == bool(ends)
    expected = text
    if ends:
        seen = text[: min(ends)]
        expected = seen[: min(seen.find(stop) for stop in stops if stop in seen)]
    assert "".join(pieces) == detokenizer.text == expected


def test_what_may_become_a_stop_text_waits_and_comes_when_it_did_not():
    pieces, stopped = told(Detokenizer(TOKENIZER, ("###",)), tokens_of("a##b##"))
    assert (pieces, stopped) == (["a", "", "", "##b", "", "", "##"], False)


def test_no_more_than_the_longest_possible_beginning_is_held_back():
    pieces, _ = told(Detokenizer(TOKENIZER, ("aab",)), tokens_of("aaaa"))
    assert pieces == ["", "", "a", "a", "aa"]


def test_a_stop_text_inside_one_token_is_found():
    class Words:
        def decode(self, tokens, skip_special_tokens):
            return "".join({0: "one END two", 1: "E", 2: "ND"}[token] for token in tokens)

    detokenizer = Detokenizer(Words(), ("END",))
    assert detokenizer.add(0)
    assert detokenizer.text == "one "
    detokenizer = Detokenizer(Words(), ("END",))
    assert [detokenizer.add(token) for token in (1, 2)] == [False, True]
    assert detokenizer.text == ""


def test_bytes_that_wait_when_a_stop_text_ends_the_output_are_dropped_with_it():
    class Words:
        """The second token ends a stop text, and begins a character that never comes."""

        def decode(self, tokens, skip_special_tokens):
            return "".join({0: "so", 1: "S", 2: "�"}[token] for token in tokens)

    detokenizer = Detokenizer(Words(), ("S",))
    assert [detokenizer.add(token) for token in (0, 2, 1)] == [False, False, True]
    detokenizer.finish()
    assert detokenizer.text == "so�"


def test_special_tokens_have_no_text():
    tokens = [*tokens_of("a"), TOKENIZER.eos_token_id, *tokens_of("b")]
    detokenizer = Detokenizer(TOKENIZER, ())
    told(detokenizer, tokens)
    assert detokenizer.text == "ab"
