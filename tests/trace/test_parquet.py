from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from specsim.errors import InputError
from specsim.trace import Trace
from specsim.trace.parquet import integers, open_parquet, reading, strings
from tests.trace.traces import replace_column, spoil

FAULTS = [
    pa.ArrowInvalid("two\nlines"),
    OSError("short read"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    KeyError("no such column"),
    IndexError("row group 3 of 2"),
    OverflowError("too large"),
    MemoryError(),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_whatever_a_damaged_file_raises_becomes_one_line(fault):
    with pytest.raises(InputError) as caught, reading(Path("x.parquet")):
        raise fault
    assert str(caught.value).startswith("x.parquet: damaged or not Parquet: ")
    assert "\n" not in str(caught.value)


def test_a_fault_that_is_named_already_keeps_its_name():
    with pytest.raises(InputError, match=r"^row 3 is wrong$"), reading(Path("x.parquet")):
        raise InputError("row 3 is wrong")


def test_a_fault_of_the_program_keeps_its_traceback():
    with pytest.raises(TypeError), reading(Path("x.parquet")):
        raise TypeError("ours")


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(InputError, match="missing; allowed: a Parquet file"):
        open_parquet(tmp_path / "nothing.parquet", [])
    with pytest.raises(InputError, match="a folder; allowed: a Parquet file"):
        open_parquet(tmp_path, [])


def test_text_that_is_no_utf_8_is_refused(folder):
    offsets, text = pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0])), pa.py_buffer(b"\xff\xfe\xfd")
    broken = pa.StringArray.from_buffers(3, offsets, text)
    spoil(folder, "requests.parquet", lambda table: replace_column(table, "domain", broken))
    with pytest.raises(InputError, match=r"requests\.parquet: damaged or not Parquet"):
        Trace.open(folder)


def test_codes_of_several_chunks_index_one_list_of_names():
    chunked = pa.chunked_array([pa.array(["b", None]).dictionary_encode(), pa.array(["a", "b"]).dictionary_encode()])
    codes, names = strings(chunked)
    assert [names[code] if code >= 0 else None for code in codes] == ["b", None, "a", "b"]


def test_integers_are_exact_beside_nulls():
    values, there = integers(pa.chunked_array([pa.array([None, 2**63 - 1]), pa.array([-(2**53) - 1], pa.int64())]))
    assert values.tolist() == [0, 2**63 - 1, -(2**53) - 1]
    assert there.tolist() == [False, True, True]
