"""Targets that the tests of the engine share: tiny, random, and never changed by a test."""

from dataclasses import replace

import pytest

from tests.live.byte_tokenizer import END, byte_tokenizer

VOCABULARY = 8
"""Tokens of the model whose laws are small enough to count."""


@pytest.fixture(scope="session")
def endless(make_target):
    """A target without a stop token, so that every output has its full length."""
    return replace(make_target("float64", eos_token_id=None), tokenizer=None)  # the tokenizer would have one


@pytest.fixture(scope="session")
def stopping(make_target):
    """A target whose outputs end early, at different lengths."""
    return make_target("float64", eos_token_id=[39, 42])


@pytest.fixture(scope="session")
def small(make_target):
    """A target of few tokens and no stop token, so that drafts are often accepted and laws can be counted."""
    return replace(make_target("float64", vocab_size=VOCABULARY, eos_token_id=None), tokenizer=None)


@pytest.fixture(scope="session")
def speaking(make_target):
    """A target with a token for every byte, and one that ends an output."""
    return replace(make_target("float32", vocab_size=END + 1, eos_token_id=END), tokenizer=byte_tokenizer())
