"""KV blocks: counted in whole blocks, all or nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specsim.serving.kv import BlockPool


def test_tokens_take_whole_blocks():
    pool = BlockPool(10, 16, 1)
    assert [pool.blocks_for(tokens) for tokens in (0, 1, 16, 17, 32, 33)] == [0, 1, 1, 2, 2, 3]


def test_a_reservation_that_does_not_fit_changes_nothing():
    pool = BlockPool(5, 4, 2)
    assert pool.reserve_all(np.array([0, 1]), np.array([8, 8]))
    assert not pool.reserve_all(np.array([0, 1]), np.array([12, 12]))
    assert pool.held.tolist() == [2, 2]
    assert pool.used == 4
    assert pool.reserve(0, 12)
    assert not pool.reserve(1, 12)
    assert pool.held.tolist() == [3, 2]


def test_a_rejected_lookahead_keeps_its_blocks_for_the_next_step():
    pool = BlockPool(None, 4, 1)
    pool.reserve(0, 20)
    assert pool.reserve_all(np.array([0]), np.array([9]))
    assert pool.held.tolist() == [5]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.booleans()), max_size=30), st.integers(1, 40))
def test_used_is_always_the_sum_of_what_is_held_and_never_more_than_there_is(actions, num_blocks):
    pool = BlockPool(num_blocks, 4, 4)
    for slot, tokens, release in actions:
        if release:
            pool.release(slot)
        else:
            before = int(pool.held[slot])
            fits = pool.used + max(0, pool.blocks_for(tokens) - before) <= num_blocks
            assert pool.reserve_all(np.array([slot]), np.array([tokens])) == fits
        assert pool.used == pool.held.sum() <= num_blocks
