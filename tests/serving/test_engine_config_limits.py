"""A limit that no engine can have is refused before anything is sized by it."""

import pytest

from specsim.errors import InputError
from specsim.serving import EngineConfig


@pytest.mark.parametrize(
    "name", ["max_num_seqs", "max_num_batched_tokens", "block_size", "num_kv_blocks", "max_model_len", "max_tokens"]
)
def test_a_limit_beyond_31_bits_is_refused(name):
    EngineConfig(**{name: 2**31 - 1})
    with pytest.raises(InputError, match=f"{name} is 2147483648; it must be at most 2,147,483,647"):
        EngineConfig(**{name: 2**31})
