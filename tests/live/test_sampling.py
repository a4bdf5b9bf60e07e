"""What may be asked of sampling, and what is refused by name."""

import pytest

from specsim.errors import InputError
from specsim.live.sampling import MAX_SEED, SamplingParams

REFUSED = {
    "max_tokens is 0": {"max_tokens": 0},
    "temperature is -0.1": {"temperature": -0.1},
    "temperature is nan": {"temperature": float("nan")},
    "temperature is inf": {"temperature": float("inf")},
    "top_k is -1": {"top_k": -1},
    "top_p is 0.0": {"top_p": 0.0},
    "top_p is 1.5": {"top_p": 1.5},
    "top_p is nan": {"top_p": float("nan")},
    "seed is -1": {"seed": -1},
    "seed is 9223372036854775808": {"seed": 2**63},
    "a stop text is empty": {"stop": ("a", "")},
}


@pytest.mark.parametrize(("told", "options"), REFUSED.items(), ids=REFUSED)
def test_it_is_refused_that(told, options):
    with pytest.raises(InputError, match=told):
        SamplingParams(**options)


def test_the_ends_of_every_range_are_allowed():
    SamplingParams(max_tokens=1, temperature=0.0, top_k=0, top_p=1.0, seed=0)
    SamplingParams(temperature=1e-6, top_k=10**6, top_p=1e-9, seed=MAX_SEED, stop=("x",))


def test_filters_count_only_where_tokens_are_drawn():
    assert not SamplingParams(temperature=0.0, top_k=3, top_p=0.5).filters
    assert not SamplingParams(temperature=1.0).filters
    assert SamplingParams(temperature=1.0, top_k=3).filters
    assert SamplingParams(temperature=1.0, top_p=0.5).filters
