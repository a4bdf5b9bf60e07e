"""Blocks are handed out once, come back once, and the table says where they are."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig

from specsim.errors import InputError
from specsim.live.paged_kv import PADDING_BLOCK, AddressedPool, PagedKV
from specsim.serving.kv import BlockPool

SLOTS, BLOCKS, SIZE, MOST = 4, 10, 4, 24


def pool():
    return AddressedPool(BLOCKS, SIZE, SLOTS, MOST, "cpu")


def check(held):
    """Every block is in exactly one place, and both tables agree."""
    given = [block for slot in range(SLOTS) for block in held.blocks_of(slot)]
    assert sorted([*given, *held._free]) == list(range(1, BLOCKS + 1))
    assert held.held.sum() <= len(given)
    table = held.device_table()
    assert np.array_equal(table.numpy(), held.table)
    for slot in range(SLOTS):
        count = len(held.blocks_of(slot))
        assert count >= held.held[slot]
        assert held.blocks_of(slot) == table[slot, :count].tolist()
        assert PADDING_BLOCK not in held.blocks_of(slot)
        assert (table[slot, count:] == PADDING_BLOCK).all()


actions = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(0, SLOTS - 1), st.integers(0, MOST)),
        st.tuples(st.just("release"), st.integers(0, SLOTS - 1), st.just(0)),
        st.tuples(st.just("all"), st.integers(0, MOST), st.integers(0, MOST)),
        st.tuples(st.just("ahead"), st.integers(0, MOST), st.integers(0, MOST)),
    ),
    max_size=30,
)


@given(actions)
def test_no_block_is_lost_or_given_twice_whatever_happens(steps):
    held, counted = pool(), BlockPool(BLOCKS, SIZE, SLOTS)
    for action, first, second in steps:
        before = held.table.copy()
        done = True
        if action == "reserve":
            done = held.reserve(first, second)
            assert done == counted.reserve(first, second)  # whatever was handed out ahead
            assert not done or len(held.blocks_of(first)) * SIZE >= second
        elif action == "release":
            held.release(first)
            counted.release(first)
            assert held.blocks_of(first) == []
        else:
            slots, wanted = np.array([0, 2]), np.array([first, second])
            if action == "all":
                done = held.reserve_all(slots, wanted)
                assert done == counted.reserve_all(slots, wanted)
            else:
                done = held.hand_out_ahead(slots, wanted)
            assert not done or all(
                len(held.blocks_of(slot)) * SIZE >= tokens for slot, tokens in zip(slots, wanted, strict=True)
            )
        if not done:
            assert np.array_equal(held.table, before)
        assert held.used == counted.used
        check(held)


def test_blocks_stay_in_order_when_more_are_reserved():
    held = pool()
    assert held.reserve(1, 5)
    first = held.blocks_of(1)
    assert held.reserve(0, 4)
    assert held.reserve(1, 12)
    assert held.blocks_of(1)[: len(first)] == first


def test_the_device_s_table_is_one_tensor_for_ever():
    """Captured graphs read it by its address."""
    held = pool()
    address = held.device_table().data_ptr()
    held.reserve(2, 9)
    assert held.device_table().data_ptr() == address
    held.release(2)
    assert held.device_table().data_ptr() == address


def config(**more):
    return LlamaConfig(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=3, **more)


def test_pools_have_a_padding_block_and_the_memory_that_is_said():
    for shape, dim in (({}, 8), ({"head_dim": 16}, 16)):
        kv = PagedKV(config(**shape), BLOCKS, SIZE, torch.float32, "cpu")
        assert [tuple(pool.shape) for pool in (*kv.keys, *kv.values)] == [(BLOCKS + 1, SIZE, 2, dim)] * 6
        size = sum(pool.nbytes for pool in (*kv.keys, *kv.values))
        assert size == (BLOCKS + 1) * PagedKV.bytes_per_block(config(**shape), SIZE, torch.float32)


def test_scrubbing_forgets_these_blocks_and_no_others():
    kv = PagedKV(config(), BLOCKS, SIZE, torch.float32, "cpu")
    for held in (*kv.keys, *kv.values):
        held.fill_(torch.nan)
    kv.scrub([2, 5])
    for held in (*kv.keys, *kv.values):
        zero = (held == 0).all(dim=(1, 2, 3))
        assert torch.nonzero(zero)[:, 0].tolist() == [2, 5]
        assert torch.isnan(held[~zero]).all()


def test_pools_without_room_are_refused_with_their_size(monkeypatch):
    def no_room(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "zeros", no_room)
    with pytest.raises(InputError, match=r"1 KV blocks of 4096 tokens take .* GiB, which cpu does not have"):
        PagedKV(config(), 1, 4096, torch.float32, "cpu")
