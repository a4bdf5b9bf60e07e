"""Packing against a loop that does one token at a time: definitions on every library, the twin on Triton."""

import os
from dataclasses import fields
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.errors import InputError
from specsim.kernels import pack as definition
from specsim.kernels.launches import LAUNCHES, reset
from specsim.kernels.pack import Packed, first_rows

if find_spec("torch"):
    import torch
else:
    torch = None
if torch is None or not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is first imported, which no test has done yet

POISON = -(10**12)
"""A token or a block that must not be read."""

DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))


def pack_twin(device):
    """The twin: interpreted on a CPU, native on a GPU."""
    pytest.importorskip("torch", reason="torch comes with the extra `live`")
    pytest.importorskip("triton", reason="triton comes with the extra `live`")
    from triton import knobs

    from specsim.kernels.pack_triton import pack

    if (device == "cpu") != bool(knobs.runtime.interpret):
        pytest.skip("Triton interprets on the CPU or compiles for the GPU, in one process only one of them")
    return pack


@pytest.fixture(params=DEVICES)
def twin(request):
    """The twin as a function of numpy arrays."""
    pack = pack_twin(request.param)

    def call(case, out=None):
        on_device = [torch.asarray(array, device=request.param) for array in case.arrays]
        packed = pack(*on_device, case.block_size, case.size, out)
        return Packed(*(getattr(packed, field.name).cpu().numpy() for field in fields(Packed)))

    call.device, call.pack = request.param, pack
    return call


def make_case(starts, counts, *, block_size=4, spare=3, seed=0, table_dtype=np.int64):
    """Requests in shuffled slots; whatever must not be read is poison."""
    rng = np.random.default_rng(seed)
    starts, counts = np.array(starts, dtype=np.int64), np.array(counts, dtype=np.int64)
    num_slots, length = len(starts) + 2, int((starts + counts).max(initial=0)) + 3
    slots = rng.permutation(num_slots)[: len(starts)].astype(np.int64)
    history = np.full((num_slots, length), POISON, dtype=np.int64)
    table = np.full((num_slots, -(-length // block_size) + 1), -1, dtype=table_dtype)
    free = iter(rng.permutation(np.arange(1, table.size + 1)))
    for slot, start, count in zip(slots, starts, counts, strict=True):
        history[slot, start : start + count] = rng.integers(0, 50_000, count)
        for logical in range(-(-(start + count) // block_size)):
            table[slot, logical] = next(free)
    size = int(counts.sum()) + spare
    arrays = (history, slots, starts, counts, table)
    return SimpleNamespace(arrays=arrays, block_size=block_size, size=size)


def packed_slowly(case):
    """One token at a time, in Python integers."""
    history, slots, starts, counts, table = (array.tolist() for array in case.arrays)
    tokens, positions, kv_index, query_start = [], [], [], [0]
    for slot, start, count in zip(slots, starts, counts, strict=True):
        for position in range(start, start + count):
            tokens.append(history[slot][position])
            positions.append(position)
            kv_index.append(table[slot][position // case.block_size] * case.block_size + position % case.block_size)
        query_start.append(query_start[-1] + count)
    for row in range(query_start[-1], case.size):
        tokens.append(0)
        positions.append(0)
        kv_index.append(row % case.block_size)
    context = [start + count for start, count in zip(starts, counts, strict=True)]
    return Packed(tokens, positions, kv_index, query_start, context)


def assert_packed(packed, case):
    slowly = packed_slowly(case)
    for field in fields(Packed):
        array = np.asarray(getattr(packed, field.name))
        assert array.dtype == np.int64, field.name
        assert array.tolist() == getattr(slowly, field.name), field.name


requests = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 9)), max_size=7)
cases = st.builds(
    lambda pairs, block_size, spare, seed, dtype: make_case(
        [start for start, _ in pairs],
        [count for _, count in pairs],
        block_size=block_size,
        spare=spare,
        seed=seed,
        table_dtype=dtype,
    ),
    requests,
    st.sampled_from((1, 4, 16)),
    st.integers(0, 9),
    st.integers(0, 99),
    st.sampled_from((np.int32, np.int64)),
)


@given(case=cases)
def test_the_definition_packs_what_a_slow_loop_packs(case):
    assert_packed(definition.pack(*case.arrays, case.block_size, case.size), case)


def test_every_library_packs_the_same(library):
    case = make_case([3, 0, 8], [2, 5, 0])
    arrays = [library.asarray(array) for array in case.arrays]
    assert_packed(definition.pack(*arrays, case.block_size, case.size), case)


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=40)
@given(case=cases)
def test_the_twin_packs_what_a_slow_loop_packs(device, case):
    pack = pack_twin(device)
    packed = pack(*(torch.asarray(array, device=device) for array in case.arrays), case.block_size, case.size)
    assert_packed(Packed(*(getattr(packed, field.name).cpu() for field in fields(Packed))), case)


EDGES = {
    "no request": ([], []),
    "nothing fed": ([5, 2], [0, 0]),
    "block edges": ([3, 4, 0, 7], [1, 4, 4, 2]),
    "more rows than a program has": ([0, 40, 7], [150, 1, 60]),
    "more requests than a program has rows": ([2] * 130, [1, 0] * 65),
}


@pytest.mark.parametrize("edge", EDGES)
def test_both_pack_the_edges(edge, twin):
    case = make_case(*EDGES[edge])
    assert_packed(definition.pack(*case.arrays, case.block_size, case.size), case)
    assert_packed(twin(case), case)


def test_both_write_into_the_given_arrays_over_whatever_was_there(twin):
    case = make_case([6, 1, 9], [3, 0, 2])
    shapes = (case.size, case.size, case.size, 4, 3)
    out = Packed(*(np.full(shape, POISON) for shape in shapes))
    assert definition.pack(*case.arrays, case.block_size, case.size, out) is out
    assert_packed(out, case)
    out = Packed(*(torch.full((shape,), POISON, dtype=torch.int64, device=twin.device) for shape in shapes))
    assert_packed(twin(case, out), case)
    assert_packed(Packed(*(getattr(out, field.name).cpu() for field in fields(Packed))), case)


def test_after_seven_drafts_five_are_fed_and_columns_five_and_six_are_never_read(twin):
    seven = make_case([10, 4], [8, 8], spare=0)
    history, slots, starts, _, table = seven.arrays
    for slot, start in zip(slots, starts, strict=True):
        history[slot, start + 6 : start + 8] = POISON  # the anchor, five drafts, then what the step before left
    five = SimpleNamespace(
        arrays=(history, slots, starts, np.array([6, 6]), table), block_size=seven.block_size, size=seven.size
    )
    for packed in (definition.pack(*five.arrays, five.block_size, five.size), twin(five)):
        assert (packed.tokens >= 0).all()
        assert_packed(packed, five)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_block_far_out_has_its_place_beyond_what_32_bits_hold(dtype, twin):
    case = make_case([0], [3], block_size=16, table_dtype=dtype)
    case.arrays[-1][:, 0] = 2**31 - 1
    for packed in (definition.pack(*case.arrays, 16, case.size), twin(case)):
        assert packed.kv_index[:3].tolist() == [(2**31 - 1) * 16 + place for place in range(3)]
        assert_packed(packed, case)


def test_transposed_and_sliced_arrays_are_packed_like_plain_ones(twin):
    case = make_case([3, 0, 8], [2, 5, 1])
    history, slots, starts, counts, table = case.arrays
    pairs = np.stack([slots, starts, counts], axis=1)
    device = twin.device
    columns = torch.asarray(pairs, device=device)
    turned = [torch.asarray(np.ascontiguousarray(array.T), device=device).T for array in (history, table)]
    packed = twin.pack(turned[0], columns[:, 0], columns[:, 1], columns[:, 2], turned[1], case.block_size, case.size)
    assert_packed(Packed(*(getattr(packed, field.name).cpu() for field in fields(Packed))), case)
    packed = definition.pack(history.T.copy().T, *pairs.T, table.T.copy().T, case.block_size, case.size)
    assert_packed(packed, case)


def test_a_requests_first_logits_stand_at_its_first_row():
    packed = definition.pack(*make_case([3, 0, 8], [2, 5, 1]).arrays, 4, 9)
    assert first_rows(packed).tolist() == [0, 2, 7]


def test_a_call_is_counted(twin):
    reset()
    twin(make_case([1], [2]))
    assert LAUNCHES["pack"] == 1


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"block_size": 0}, "block_size 0"),
        ({"size": -1}, "size -1"),
        ({"counts": np.array([1, 2, 3])}, "one length"),
        ({"block_table": np.zeros((1, 4), dtype=np.int64)}, r"block_table \(1, 4\)"),
        ({"out": Packed(*(np.zeros(5, dtype=np.int64) for _ in range(5)))}, r"out.query_start \(5,\): \(3,\)"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(change, fault):
    names = ("history", "slots", "starts", "counts", "block_table")
    arguments = dict(zip(names, make_case([3, 0], [2, 1]).arrays, strict=True)) | {"block_size": 4, "size": 5}
    with pytest.raises(InputError, match=fault):
        definition.pack(**(arguments | change))
