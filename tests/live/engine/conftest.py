"""Targets that the tests of the engine share: tiny, random, and never changed by a test."""

import pytest


@pytest.fixture(scope="session")
def endless(make_target):
    """A target without a stop token, so that every output has its full length."""
    return make_target("float64", eos_token_id=None)


@pytest.fixture(scope="session")
def stopping(make_target):
    """A target whose outputs end early, at different lengths."""
    return make_target("float64", eos_token_id=[39, 42])
