"""Token data are read as they were written, and what is no token data is refused."""

import lzma

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.live.training.data import join_rows, loops, read_tokens

ARRAYS = {
    "p": np.array([1, 2, 3, 4, 5], np.uint16),
    "o": np.array([10, 11, 20, 30, 31, 32], np.uint16),
    "pl": np.array([2, 2, 1], np.int32),
    "ol": np.array([2, 1, 3], np.int32),
    "dom": np.array([0, 2, 1], np.int8),
    "kind": np.array([0, 1, 2], np.int8),
}


def write(path, **changes):
    np.savez(path, **{key: value for key, value in (ARRAYS | changes).items() if value is not None})
    return path


def test_rows_are_each_prompt_with_its_output(tmp_path):
    data = read_tokens(write(tmp_path / "a.npz"))
    assert [data.row(index).tolist() for index in range(3)] == [[1, 2, 10, 11], [3, 4, 20], [5, 30, 31, 32]]
    assert data.lengths.tolist() == [4, 3, 4]
    assert (data.prompt_len.tolist(), data.domain.tolist(), data.kind.tolist()) == ([2, 2, 1], [0, 2, 1], [0, 1, 2])


def test_packed_files_and_files_without_kinds_are_read(tmp_path):
    plain = write(tmp_path / "a.npz", kind=None)
    packed = tmp_path / "a.npz.xz"
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    data = read_tokens(packed)
    assert data.row(2).tolist() == [5, 30, 31, 32]
    assert data.kind.tolist() == [0, 0, 0]


def test_selected_rows_come_in_the_order_asked_for(tmp_path):
    data = read_tokens(write(tmp_path / "a.npz")).select(np.array([2, 0]))
    assert [data.row(index).tolist() for index in range(2)] == [[5, 30, 31, 32], [1, 2, 10, 11]]
    assert data.prompt_len.tolist() == [1, 2]
    assert data.rows_of(["code"]).tolist() == [0]
    with pytest.raises(InputError, match="'poems': must be one of chat, code, math"):
        data.rows_of(["poems"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"pl": None}, "lacks the array 'pl'"), ({"ol": np.array([2, 1, 2])}, "do not add up"), ({}, "token 32")],
)
def test_broken_files_are_refused(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        read_tokens(write(tmp_path / "a.npz", **changes), vocab_size=32)


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"no archive")
    with pytest.raises(InputError, match="cannot be read as token data"):
        read_tokens(tmp_path / "a.npz")


def test_rows_given_one_by_one_are_joined():
    data = join_rows([np.array([1, 2]), np.array([3])], [np.array([4]), np.array([5, 6])], [0, 1], [0, 0])
    assert [data.row(index).tolist() for index in range(2)] == [[1, 2, 4], [3, 5, 6]]


def test_an_output_loops_when_more_than_forty_percent_of_its_4_grams_repeat():
    assert not loops(np.arange(50))
    assert loops(np.tile(np.arange(5), 10))
    assert not loops(np.concatenate((np.arange(32), np.arange(23))))  # 20 of 52 repeat: 38 %
    assert loops(np.concatenate((np.arange(32), np.arange(25))))  # 22 of 54: 41 %
    assert not loops(np.arange(2))
