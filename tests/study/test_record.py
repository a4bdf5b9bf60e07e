"""Records on disk: nothing is lost, nothing half-written is read."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pyarrow.dataset as ds
import pytest

from specsim.errors import InputError
from specsim.study.plan import Plan, Task
from specsim.study.record import PARTS, part_path, read_records, stored_keys, write_record
from specsim.study.task import run_planned


@pytest.fixture
def record(study):
    return run_planned(Plan(study()), Task(0, 3, 8, 0.0, 0))


def same(left, right):
    """Equal, NaN included."""
    left, right = dataclasses.asdict(left), dataclasses.asdict(right)
    assert np.array_equal(left.pop("counts"), right.pop("counts"))
    return repr(left) == repr(right)


def test_a_record_comes_back_as_it_was(record, tmp_path):
    write_record(tmp_path, record)
    assert same(read_records(tmp_path, [record.key])[0], record)


def test_what_is_unknown_or_absent_comes_back_as_such(record, tmp_path):
    summary = dataclasses.replace(record.summary, acceptance_rate=math.nan)
    bare = dataclasses.replace(record, summary=summary, series={}, lossy_reason="because", notes=())
    write_record(tmp_path, bare)
    assert same(read_records(tmp_path, [bare.key])[0], bare)


def test_an_int64_seed_beyond_the_floats_comes_back_exactly(record, tmp_path):
    large = dataclasses.replace(record, seed=9007199254740993)
    write_record(tmp_path, large)
    assert read_records(tmp_path, [large.key])[0].seed == 9007199254740993


def test_the_folder_reads_as_one_data_set(record, tmp_path):
    write_record(tmp_path, record)
    write_record(tmp_path, dataclasses.replace(record, key="other", seed=1, series={}))
    table = ds.dataset(tmp_path / PARTS, exclude_invalid_files=True).to_table()
    assert table.num_rows == 2
    assert set(table.column("policy").to_pylist()) == {"dcut@strong"}


def test_an_unfinished_part_is_not_a_finished_run(record, tmp_path):
    write_record(tmp_path, record)
    assert [path.name for path in (tmp_path / PARTS).iterdir()] == [f"{record.key}.parquet"]
    (tmp_path / PARTS / ".abc.123.partial").write_bytes(b"PAR1")
    assert stored_keys(tmp_path) == {record.key}


def test_a_damaged_part_is_named_with_the_remedy(record, tmp_path):
    write_record(tmp_path, record)
    path = part_path(tmp_path, record.key)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(
        InputError, match=rf"{record.key}\.parquet: not a finished run .*delete it to run it again"
    ) as caught:
        read_records(tmp_path, [record.key])
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_not_there_holds_no_runs(tmp_path):
    assert stored_keys(tmp_path / "nowhere") == set()
