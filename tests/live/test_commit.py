"""Where a block of accepted drafts ends: at a stop token, a stop text, or the limit, whichever is first."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.live.commit import Emission, add_text, cut_blocks
from specsim.live.detokenizer import Detokenizer
from specsim.live.members import Members
from specsim.live.requests import LiveRequest
from specsim.live.sampling import SamplingParams

EOS = 9


class Digits:
    """A token is a digit."""

    def decode(self, tokens, skip_special_tokens):
        return "".join(str(token) for token in tokens if token != EOS)


def request(ignore_eos=False, stop=()):
    detokenizer = Detokenizer(Digits(), stop) if stop else None
    params = SamplingParams(stop=stop, ignore_eos=ignore_eos)
    return LiveRequest(0, 0, 0, "", 1, 50, False, 0.0, params=params, detokenizer=detokenizer)


def cut(block, accepted, room=50, stop_ids=(EOS,), **params):
    """(emitted, accepted, stopped) of one request."""
    found = cut_blocks(
        np.array([block]), np.array([accepted]), np.array([room]), np.array(stop_ids), Members([request(**params)])
    )
    return int(found.num_emitted[0]), int(found.num_accepted[0]), bool(found.stopped[0])


CASES = {
    "all accepted": (([1, 2, 3, 4], 3), {}, (4, 3, False)),
    "one accepted": (([1, 2, 3, 4], 1), {}, (2, 1, False)),
    "none accepted": (([1, 2, 3, 4], 0), {}, (1, 0, False)),
    "the limit inside the block": (([1, 2, 3, 4], 3), {"room": 2}, (2, 2, False)),
    "the limit behind the last draft": (([1, 2, 3, 4], 3), {"room": 3}, (3, 3, False)),
    "a stop token among the drafts": (([1, EOS, 3, 4], 3), {}, (2, 2, True)),
    "a stop token as bonus": (([1, 2, 3, EOS], 3), {}, (4, 3, True)),
    "a stop token in place of a rejected draft": (([1, EOS, 3, 4], 1), {}, (2, 1, True)),
    "a stop token behind what was accepted": (([1, 2, EOS, 4], 1), {}, (2, 1, False)),
    "a stop token behind the limit": (([1, 2, EOS, 4], 3), {"room": 2}, (2, 2, False)),
    "a stop token at the limit": (([1, EOS, 3, 4], 3), {"room": 2}, (2, 2, True)),
    "a stop token that is ignored": (([1, EOS, 3, 4], 3), {"ignore_eos": True}, (4, 3, False)),
    "no stop tokens at all": (([1, EOS, 3, 4], 3), {"stop_ids": ()}, (4, 3, False)),
    "two stop tokens": (([1, EOS, EOS, 4], 3), {}, (2, 2, True)),
    "a stop text among the drafts": (([1, 2, 3, 4], 3), {"stop": ("12",)}, (2, 2, True)),
    "a stop text before a stop token": (([1, 2, EOS, 4], 3), {"stop": ("12",)}, (2, 2, True)),
    "a stop token before a stop text": (([1, EOS, 2, 3], 3), {"stop": ("23",)}, (2, 2, True)),
    "a stop text behind the limit": (([1, 2, 3, 4], 3), {"room": 2, "stop": ("23",)}, (2, 2, False)),
    "a stop text at the limit": (([1, 2, 3, 4], 3), {"room": 2, "stop": ("12",)}, (2, 2, True)),
    "nothing may be emitted": (([1, 2, 3, 4], 0), {"room": 0}, (0, 0, False)),
}


@pytest.mark.parametrize(("block", "options", "expected"), CASES.values(), ids=CASES)
def test_a_block_ends_at(block, options, expected):
    assert cut(*block, **options) == expected


def test_a_stop_text_may_begin_in_an_earlier_block():
    asked = request(stop=("234",))
    found = []
    for block in ([1, 2], [3, 4]):
        found.append(cut_blocks(np.array([block]), np.array([1]), np.array([50]), np.array([EOS]), Members([asked])))
    assert [bool(one.stopped[0]) for one in found] == [False, True]
    assert asked.text == "1"


@given(st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=4, max_size=4), st.integers(0, 3), st.integers(1, 5))))
def test_requests_of_a_batch_are_cut_as_each_alone(rows):
    blocks = np.array([row[0] for row in rows]).reshape(-1, 4)
    accepted, room = (np.array([row[index] for row in rows], np.int64) for index in (1, 2))
    found = cut_blocks(blocks, accepted, room, np.array([EOS]), Members([request() for _ in rows]))
    alone = [cut(*row) for row in rows]
    assert list(zip(found.num_emitted, found.num_accepted, found.stopped, strict=True)) == alone


def test_text_that_ends_nobody_grows_by_what_was_emitted_but_for_a_stop_token():
    class Heard:
        def __init__(self):
            self.tokens = []

        def add(self, token):
            self.tokens.append(token)

    requests = [request(), request(), request(stop=("1",)), request()]
    for one in (requests[0], requests[3]):
        one.detokenizer = Heard()
    blocks = np.array([[1, 2, EOS], [1, 2, 3], [1, 2, 3], [4, 5, 6]])
    emission = Emission(np.array([2, 2, 2, 1]), np.array([3, 3, 3, 2]), np.array([True, False, False, False]))
    add_text(blocks, emission, Members(requests))
    assert [requests[row].detokenizer.tokens for row in (0, 3)] == [[1, 2], [4, 5]]
    assert requests[2].detokenizer.text == ""  # it was read for stop texts when the block was cut
