"""Attention as the CPU engine computes it equals its definition, whatever lies where nobody may look."""

import numpy as np
import pytest
import torch

from specsim.kernels.attention import ragged_paged_attention
from specsim.kernels.pack import Packed
from specsim.live.cpu_attention import NARROW, attend, prepare, store_kv

HEADS, KV_HEADS, DIM, BLOCK = 4, 2, 8, 4


def case(counts, contexts, seed=0, dtype=torch.float64):
    """Requests that feed `counts` tokens of `contexts`; NaN wherever none of their keys and values lies."""
    rng = np.random.default_rng(seed)
    needed = [-(-context // BLOCK) for context in contexts]
    blocks = iter(rng.permutation(np.arange(1, sum(needed) + 1)).tolist())
    table = np.zeros((len(counts), max(needed) + 1), np.int64)
    pools = torch.full((2, sum(needed) + 1, BLOCK, KV_HEADS, DIM), torch.nan, dtype=dtype)
    for row, (context, number) in enumerate(zip(contexts, needed, strict=True)):
        table[row, :number] = [next(blocks) for _ in range(number)]
        for place in range(context):
            pools[:, table[row, place // BLOCK], place % BLOCK] = torch.from_numpy(
                rng.standard_normal((2, KV_HEADS, DIM))
            ).to(dtype)
    start = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))
    query = torch.from_numpy(rng.standard_normal((sum(counts), HEADS, DIM))).to(dtype)
    nothing = torch.zeros(sum(counts), dtype=torch.int64)
    packed = Packed(nothing, nothing, nothing, start, torch.tensor(contexts))
    return query, pools[0], pools[1], torch.from_numpy(table), packed


CASES = {
    "one token each": ([1, 1, 1], [7, 1, 12]),
    "drafts beside plain steps": ([5, 1, 3], [9, 20, 3]),
    "a prompt beside decodes": ([1, 40, 4], [13, 40, 30]),
    "a later piece of a prompt": ([NARROW + 1, 2], [90, 2]),
    "as many tokens as attend together": ([NARROW, 1], [NARROW, 70]),
    "somebody feeds nothing": ([2, 0, 1], [6, 5, 4]),
    "equal contexts": ([2, 2], [8, 8]),
}


@pytest.mark.parametrize(("counts", "contexts"), CASES.values(), ids=CASES)
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
def test_it_equals_the_definition_and_never_reads_what_is_not_there(counts, contexts, dtype, close):
    query, keys, values, table, packed = case(counts, contexts, dtype=dtype)
    expected = ragged_paged_attention(query, keys, values, table, packed.query_start, packed.context, 0.3)
    got = attend(query, keys, values, prepare(packed, table, BLOCK), 0.3)
    assert got.dtype == dtype
    assert torch.isfinite(got).all()
    assert float((got - expected).abs().max()) < close


def test_pools_keep_what_they_held():
    """What nobody may look at is blanked in a copy only."""
    query, keys, values, table, packed = case(*CASES["drafts beside plain steps"])
    before = keys.clone(), values.clone()
    attend(query, keys, values, prepare(packed, table, BLOCK), 0.3)
    assert torch.equal(keys.nan_to_num(9.0), before[0].nan_to_num(9.0))
    assert torch.equal(values.nan_to_num(9.0), before[1].nan_to_num(9.0))


def test_keys_and_values_are_stored_at_their_places_and_nowhere_else():
    rng = np.random.default_rng(1)
    key, value = (torch.from_numpy(rng.standard_normal((3, KV_HEADS, DIM))) for _ in "kv")
    pools = torch.full((2, 4, BLOCK, KV_HEADS, DIM), torch.nan, dtype=torch.float64)
    place = torch.tensor([13, 4, 7])
    store_kv(key, value, pools[0], pools[1], place)
    for given, pool in ((key, pools[0]), (value, pools[1])):
        flat = pool.view(-1, KV_HEADS, DIM)
        assert torch.equal(flat[place], given)
        assert int(torch.isfinite(flat).all(dim=(1, 2)).sum()) == 3
