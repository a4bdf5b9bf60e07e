"""The error a person sees."""

import pickle

import pytest

from specsim.errors import InputError


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\x0b", "\x1e", "\x85", "\u2028"])
def test_a_message_is_one_line_whatever_it_quotes(line_break):
    message = str(InputError(f"option 'a{line_break}b': allowed c"))
    assert message == "option 'a b': allowed c"


def test_it_crosses_processes():
    error = pickle.loads(pickle.dumps(InputError("a  b")))
    assert isinstance(error, ValueError)
    assert str(error) == "a  b"
