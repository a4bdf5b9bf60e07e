"""Paged attention: the definition against a softmax done a number at a time, the twin against the definition.

Whatever must not be read is NaN, or a block that no pool has.
"""

import os
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from unittest.mock import patch

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.kernels import attention as definition
from specsim.kernels.launches import LAUNCHES, reset

if find_spec("torch"):
    import torch
else:
    torch = None
if torch is None or not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is first imported, which no test has done yet

if torch is not None and find_spec("triton"):
    import triton
    import triton.language as tl

    from specsim.kernels import attention_triton, store_kv_triton

    @triton.jit
    def offset_kernel(block, place, out, block_stride, place_stride):
        offset = attention_triton.row_offset(tl.load(block), tl.load(place), block_stride, place_stride)
        tl.store(out, offset)


NOWHERE = 2**30
"""A block that no pool has: to read it is to read another's memory."""


@pytest.fixture(params=("cpu", pytest.param("cuda", marks=pytest.mark.gpu)))
def device(request):
    """Where the twin runs: interpreted on a CPU, native on a GPU."""
    pytest.importorskip("torch", reason="torch comes with the extra `live`")
    pytest.importorskip("triton", reason="triton comes with the extra `live`")
    from triton import knobs

    if (request.param == "cpu") != bool(knobs.runtime.interpret):
        pytest.skip("Triton interprets on the CPU or compiles for the GPU, in one process only one of them")
    return request.param


@pytest.fixture
def twin(device):
    return attention_triton


@dataclass(frozen=True)
class Case:
    """Arguments of `ragged_paged_attention`, numpy float64."""

    query: np.ndarray
    key_pool: np.ndarray
    value_pool: np.ndarray
    block_table: np.ndarray
    query_start: np.ndarray
    context: np.ndarray
    scale: float

    def arguments(self, make=lambda array: array, dtype=None):
        arrays = [self.query, self.key_pool, self.value_pool, self.block_table, self.query_start, self.context]
        arrays = [make(array) for array in arrays]
        if dtype is not None:
            arrays[:3] = [array.to(dtype) for array in arrays[:3]]
        return (*arrays, self.scale)

    def on(self, device, dtype):
        return self.arguments(lambda array: torch.asarray(array, device=device), dtype)


def make_case(counts, context, *, heads=(4, 2), dim=16, block_size=16, spare=3, spare_blocks=2, seed=0):
    """Ragged requests in shuffled blocks of a pool that is NaN wherever no key of theirs lies."""
    rng = np.random.default_rng(seed)
    num_heads, num_kv_heads = heads
    blocks = [-(-length // block_size) for length in context]
    order = iter(1 + rng.permutation(sum(blocks)))
    table = np.full((len(context), max(blocks, default=0) + spare_blocks), NOWHERE, dtype=np.int32)
    pools = np.full((2, 1 + sum(blocks), block_size, num_kv_heads, dim), np.nan)
    for request, length in enumerate(context):
        for logical in range(blocks[request]):
            table[request, logical] = block = next(order)
            used = min(block_size, length - logical * block_size)
            pools[:, block, :used] = rng.standard_normal((2, used, num_kv_heads, dim))
    query = np.full((sum(counts) + spare, num_heads, dim), np.nan)
    query[: sum(counts)] = rng.standard_normal((sum(counts), num_heads, dim))
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Case(query, *pools, table, starts, np.array(context, dtype=np.int64), dim**-0.5)


def attended_slowly(case):
    """One row and one head at a time, straight from the formula."""
    out = np.zeros(case.query.shape)
    block_size, num_kv_heads = case.key_pool.shape[1:3]
    group = case.query.shape[1] // num_kv_heads
    for request, length in enumerate(case.context.tolist()):
        first, after = case.query_start[request : request + 2].tolist()
        for row in range(first, after):
            seen = range(length - (after - row) + 1)
            where = [(case.block_table[request, at // block_size], at % block_size) for at in seen]
            for head in range(case.query.shape[1]):
                scores = [case.query[row, head] @ case.key_pool[b, p, head // group] * case.scale for b, p in where]
                weights = np.exp(np.array(scores) - max(scores))
                values = np.array([case.value_pool[b, p, head // group] for b, p in where])
                out[row, head] = weights / weights.sum() @ values
    return out


def error(found, wanted):
    """Largest difference by the size of what is wanted; infinite where something is not a number."""
    found, wanted = np.asarray(found, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
    assert found.shape == wanted.shape
    worst = np.abs(found - wanted).max(initial=0.0) / np.abs(wanted).max(initial=1e-30)
    return np.inf if np.isnan(worst) else worst


RAGGED = {
    "one token each": ([1, 1, 1], [1, 17, 40]),
    "counts with zeros": ([0, 3, 0, 5, 0], [9, 20, 0, 5, 33]),
    "block edges": ([1, 2, 7, 1, 5], [16, 17, 32, 33, 5]),
    "a prompt": ([19], [19]),
    "a prompt beside decoding": ([1, 18, 4], [50, 45, 64]),
    "nothing fed": ([0, 0], [7, 0]),
}


@cache
def ragged(name, heads=(4, 2), dim=16, block_size=16):
    case = make_case(*RAGGED[name], heads=heads, dim=dim, block_size=block_size)
    return case, attended_slowly(case)


@pytest.mark.parametrize("name", RAGGED)
@pytest.mark.parametrize("heads", [(2, 2), (6, 2), (8, 1)])
def test_the_definition_is_the_formula(name, heads):
    case, wanted = ragged(name, heads)
    assert error(definition.ragged_paged_attention(*case.arguments()), wanted) <= 1e-12


def test_the_definition_is_the_same_on_every_library(library):
    case, wanted = ragged("block edges")
    out = definition.ragged_paged_attention(*case.arguments(library.asarray))
    assert error(out, wanted) <= 1e-12


def test_float32_goes_in_and_comes_out():
    case, wanted = ragged("a prompt")
    narrow = [array.astype(np.float32) for array in case.arguments()[:3]]
    out = definition.ragged_paged_attention(*narrow, *case.arguments()[3:])
    assert out.dtype == np.float32
    assert error(out, wanted) <= 2e-5


def attend(twin, case, device, dtype):
    """The twin's output as float64 numpy, in memory that was NaN before."""
    arguments, empty = case.on(device, dtype), torch.empty
    with patch.object(torch, "empty", lambda *shape, **options: empty(*shape, **options).fill_(torch.nan)):
        return twin.ragged_paged_attention(*arguments).to(torch.float64).cpu().numpy()


@pytest.fixture(params=[1, 4], ids=["whole", "split"])
def splits(request, twin, monkeypatch):
    """Each request's keys by one program, and by four."""
    monkeypatch.setattr(twin, "num_splits", lambda *shape: request.param)
    return request.param


@pytest.mark.parametrize("name", RAGGED)
@pytest.mark.parametrize("heads", [(2, 2), (6, 2), (8, 1)])
def test_the_twin_is_the_definition_in_float32(name, heads, twin, device, splits):
    case, wanted = ragged(name, heads)
    out = attend(twin, case, device, torch.float32)
    assert error(out, wanted) <= 2e-5
    assert not out[case.query_start[-1] :].any()


HEADS_OF = {"float32": (64, 80, 128, 256), "bfloat16": (64, 96, 128, 256), "float16": (80, 128)}


@pytest.mark.parametrize(("dtype", "dim"), [(dtype, dim) for dtype, dims in HEADS_OF.items() for dim in dims])
def test_the_twin_is_the_definition_for_every_head_size_and_dtype(dim, dtype, twin, device, splits):
    case, wanted = ragged("block edges", (3, 1), dim)
    out = attend(twin, case, device, getattr(torch, dtype))
    assert error(out, wanted) <= (2e-5 if dtype == "float32" else 1e-2)


@pytest.mark.parametrize("block_size", [16, 32, 128])
def test_the_twin_is_the_definition_for_every_block_size(block_size, twin, device, splits):
    case, wanted = ragged("block edges", block_size=block_size)
    assert error(attend(twin, case, device, torch.float32), wanted) <= 2e-5


def test_scores_far_apart_neither_overflow_nor_vanish(twin, device, splits):
    case = replace(make_case([1, 40], [70, 90]), scale=40.0)
    out = attend(twin, case, device, torch.float32)
    assert error(out, attended_slowly(case)) <= 1e-4  # scores of hundreds lose digits in float32


def test_permuting_the_requests_permutes_the_outputs_bit_for_bit(twin, device, splits):
    case, _ = ragged("block edges", (2, 1))
    order = np.random.default_rng(5).permutation(len(case.context))
    counts = np.diff(case.query_start)
    rows = np.concatenate([np.arange(case.query_start[r], case.query_start[r + 1]) for r in order])
    fed = len(rows)
    permuted = replace(
        case,
        query=np.concatenate([case.query[rows], case.query[fed:]]),
        block_table=case.block_table[order],
        query_start=np.concatenate([[0], np.cumsum(counts[order])]),
        context=case.context[order],
    )
    straight = attend(twin, case, device, torch.float32)
    turned = attend(twin, permuted, device, torch.float32)
    assert turned[:fed].tobytes() == straight[rows].tobytes()


def test_views_with_any_strides_are_read_like_plain_arrays(twin, device, splits):
    case, wanted = ragged("block edges", (2, 1))

    def turned(array):
        """The same numbers with the axes in memory in the opposite order, and a gap after each number."""
        axes = tuple(reversed(range(array.ndim)))
        roomy = np.full((*array.T.shape[:-1], 2 * array.shape[0]), -1, dtype=array.dtype)
        roomy[..., ::2] = array.T
        return torch.asarray(roomy, device=device)[..., ::2].permute(axes)

    plain = case.on(device, torch.float32)
    views = [turned(array) for array in case.arguments()[:-1]]
    views[:3] = [array.to(torch.float32) for array in views[:3]]
    assert not any(array.is_contiguous() for array in views)
    for viewed in (range(6), (0, 2, 4), (1, 3, 5)):  # keys and values in layouts of their own too
        arguments = [views[at] if at in viewed else plain[at] for at in range(6)]
        assert error(twin.ragged_paged_attention(*arguments, case.scale).cpu(), wanted) <= 2e-5


def test_tokens_that_others_wrote_behind_a_requests_context_are_not_seen(twin, device, splits):
    case, wanted = ragged("block edges")
    keys, values = case.key_pool.copy(), case.value_pool.copy()
    keys[np.isnan(keys)], values[np.isnan(values)] = 100.0, 1e6
    full = replace(case, key_pool=keys, value_pool=values)
    assert error(definition.ragged_paged_attention(*full.arguments()), wanted) <= 1e-12
    assert error(attend(twin, full, device, torch.float32), wanted) <= 2e-5


def test_a_pass_without_requests_or_rows_is_zeros_or_nothing(twin, device):
    for case, shape in ((make_case([], [], spare=3), (3, 4, 16)), (make_case([], [], spare=0), (0, 4, 16))):
        out = attend(twin, case, device, torch.float32)
        assert out.shape == shape
        assert not out.any()
        assert definition.ragged_paged_attention(*case.arguments()).tolist() == out.tolist()


def test_keys_are_split_only_while_tiles_are_few_and_by_shapes_alone(twin):
    assert twin.num_splits(1, 8, 4096, 132) == 32  # batch 1: 8 programs on 132 multiprocessors, 128 keys each
    assert twin.num_splits(1, 8, 1024, 132) == 8
    assert twin.num_splits(160, 8, 4096, 132) == 1
    assert twin.num_splits(1, 1, 10**6, 132) == twin.MOST_SPLITS
    assert twin.num_splits(1, 8, 100, 132) == 1


@pytest.mark.parametrize("group", [1, 3, 4, 8, 128])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_a_tile_holds_what_an_average_request_feeds_and_no_more(group, itemsize, twin):
    for tokens in (1, 4, 16, 512):
        tile = twin.tile_of(64 * tokens, 64, group, 128, itemsize)
        assert tile.rows & (tile.rows - 1) == 0
        assert tile.tokens == tile.rows // group >= 1
        assert tile.rows <= max(16, 2 * tokens * group)


def test_a_place_in_a_large_pool_is_beyond_what_32_bits_hold(twin, device):
    block, place = (torch.tensor(number, dtype=torch.int32, device=device) for number in (2**20 + 3, 15))
    out = torch.zeros((), dtype=torch.int64, device=device)
    offset_kernel[(1,)](block, place, out, 16 * 8 * 128, 8 * 128)
    assert out.item() == (2**20 + 3) * 16 * 8 * 128 + 15 * 8 * 128 > 2**31


@pytest.mark.gpu
def test_a_pool_of_more_than_two_to_the_31_numbers_is_read_and_written_at_its_end(twin):
    small = make_case([2, 1], [20, 40], heads=(8, 8), dim=128)
    arguments = small.on("cuda", torch.bfloat16)
    wanted = twin.ragged_paged_attention(*arguments)
    query, keys, values, table, *rest = arguments
    shift = 2**31 // (16 * 8 * 128) + 5
    pools = [torch.full((shift + keys.shape[0], 16, 8, 128), torch.nan, dtype=keys.dtype, device="cuda") for _ in "kv"]
    index = torch.arange(shift * 16, (shift + keys.shape[0]) * 16, device="cuda")
    store_kv_triton.store_kv(keys.reshape(-1, 8, 128), values.reshape(-1, 8, 128), *pools, index)
    assert torch.equal(twin.ragged_paged_attention(query, *pools, table + shift, *rest), wanted)


@pytest.mark.gpu
def test_a_captured_call_follows_what_its_arrays_hold_when_it_is_replayed(twin):
    first, second = make_case([1, 3, 0], [20, 40, 7]), make_case([2, 0, 2], [33, 5, 64], seed=1)
    blocks = max(case.key_pool.shape[0] for case in (first, second))
    width = max(case.block_table.shape[1] for case in (first, second))

    def padded(case):
        room = [(0, blocks - case.key_pool.shape[0]), (0, 0), (0, 0), (0, 0)]
        pools = [np.pad(pool, room, constant_values=np.nan) for pool in (case.key_pool, case.value_pool)]
        table = np.pad(case.block_table, [(0, 0), (0, width - case.block_table.shape[1])], constant_values=NOWHERE)
        return replace(case, key_pool=pools[0], value_pool=pools[1], block_table=table)

    first, second = padded(first), padded(second)
    held = first.on("cuda", torch.float32)
    twin.ragged_paged_attention(*held)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = twin.ragged_paged_attention(*held)
    for case in (second, first):
        for place, new in zip(held[:-1], case.on("cuda", torch.float32)[:-1], strict=True):
            place.copy_(new)
        out.fill_(torch.nan)
        graph.replay()
        assert error(out.cpu(), attended_slowly(case)) <= 2e-5


def stored(num_kv_heads=3, dim=20, tokens=9, seed=0):
    rng = np.random.default_rng(seed)
    key, value = rng.standard_normal((2, tokens, num_kv_heads, dim)).astype(np.float32)
    pools = np.full((2, 4, 16, num_kv_heads, dim), -7.0, dtype=np.float32)
    return key, value, pools, rng.permutation(64)[:tokens]


def wanted_pools(key, value, pools, index):
    wanted = pools.copy()
    for row, at in enumerate(index.tolist()):
        wanted[0, at // 16, at % 16], wanted[1, at // 16, at % 16] = key[row], value[row]
    return wanted


def test_the_definition_stores_each_token_in_its_place_and_nothing_else():
    key, value, pools, index = stored()
    wanted = wanted_pools(key, value, pools, index)
    definition.store_kv(key, value, *pools, index)
    assert pools.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("shape", [(3, 20, 9), (1, 64, 1), (8, 128, 4), (2, 16, 0)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_twin_stores_bit_for_bit_what_the_definition_stores(shape, dtype, twin, device):
    key, value, pools, index = (torch.asarray(array).to(device) for array in stored(*shape))
    key, value, pools = (array.to(getattr(torch, dtype)) for array in (key, value, pools))
    expected = pools.clone()
    definition.store_kv(key, value, *expected, index)
    store_kv_triton.store_kv(key, value, *pools, index)
    assert torch.equal(pools, expected)


def test_strided_keys_go_into_a_strided_pool_beside_plain_values(twin, device):
    key, value, pools, index = stored()
    wanted = wanted_pools(key, value, pools, index)

    def view(array):
        return torch.asarray(np.ascontiguousarray(np.moveaxis(array, -2, 0)), device=device).movedim(0, -2)

    key_pool = torch.stack([view(pools[0])] * 2, dim=-1)[..., 1]
    index, plain = torch.asarray(index, device=device), torch.asarray(value, device=device)
    for store in (definition.store_kv, store_kv_triton.store_kv):
        key_pool.fill_(-7.0)
        value_pool = torch.asarray(pools[1].copy(), device=device)
        store(view(key), plain, key_pool, value_pool, index)
        assert key_pool.cpu().numpy().tobytes() == wanted[0].tobytes()
        assert value_pool.cpu().numpy().tobytes() == wanted[1].tobytes()


def test_calls_are_counted_by_name(twin, device):
    reset()
    attend(twin, ragged("one token each")[0], device, torch.float32)
    key, value, pools, index = (torch.asarray(array).to(device) for array in stored())
    store_kv_triton.store_kv(key, value, *pools, index)
    assert LAUNCHES == {"ragged_paged_attention": 1, "store_kv": 1}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"query": np.zeros((6, 64))}, r"query \(6, 64\)"),
        ({"value_pool": np.zeros((1, 16, 2, 16))}, r"and \(1, 16, 2, 16\)"),
        ({"query": np.zeros((6, 5, 16))}, "query heads 5 of 16, key heads 2"),
        ({"query": np.zeros((6, 4, 8))}, "query heads 4 of 8, key heads 2 of 16"),
        ({"context": np.zeros(4, dtype=np.int64)}, r"context \(4,\)"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(change, fault):
    with pytest.raises(InputError, match=fault):
        definition.ragged_paged_attention(*replace(ragged("one token each")[0], **change).arguments())


@pytest.mark.parametrize(
    ("options", "dtype", "fault"),
    [
        ({}, "float64", "torch.float64: one of float16, bfloat16, float32"),
        ({"dim": 272}, "float32", "heads of 272: at most 256"),
        ({"block_size": 8}, "float32", "blocks of 8"),
        ({"block_size": 48}, "float32", "blocks of 48"),
    ],
)
def test_what_the_kernel_cannot_do_is_refused(options, dtype, fault, twin, device):
    with pytest.raises(InputError, match=fault):
        attend(twin, make_case([1], [3], **options), device, getattr(torch, dtype))


def test_keys_to_store_of_the_wrong_shape_or_dtype_are_refused():
    key, value, pools, index = stored()
    with pytest.raises(InputError, match=r"kv_index \(8,\)"):
        definition.store_kv(key, value, *pools, index[:8])
    with pytest.raises(InputError, match="key float64, value float32"):
        definition.store_kv(key.astype(np.float64), value, *pools, index)
