from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specsim.errors import InputError
from specsim.telemetry import STEP_DTYPE
from specsim.trace import RecordedBlocks, RequestRow, Trace, TraceWriter
from specsim.trace.schema import STEP_COLUMNS, arrow_schema
from tests.trace.traces import drafter, manifest, set_value, spoil


def two_steps() -> np.ndarray:
    steps = np.zeros(2, STEP_DTYPE)
    steps["arm"] = [0, -1]
    steps["batch"] = 3
    steps["depth"] = [2, 0]
    steps["num_drafted"] = [6, 0]
    steps["num_verified"] = [5, 0]
    steps["num_tested"] = [4, 0]
    steps["num_accepted"] = [2, 0]
    steps["verify_seconds"] = 0.25
    steps["plan_hash"] = [-(2**62) - 1, 2**62 + 1]
    return steps


@pytest.fixture
def folder(tmp_path):
    writer = TraceWriter(tmp_path / "trace", manifest(drafter("only", max_depth=2)))
    writer.add(RequestRow(1, "chat", 1, 1, "stop"), {"only": RecordedBlocks([0], [0], [0], [[]])})
    writer.finish(steps=two_steps())
    return tmp_path / "trace"


def test_the_columns_are_those_of_the_telemetry():
    assert tuple(column.name for column in STEP_COLUMNS) == STEP_DTYPE.names
    kinds = [pa.array([], field.type).to_numpy().dtype for field in arrow_schema(STEP_COLUMNS)]
    assert kinds == [STEP_DTYPE[name] for name in STEP_DTYPE.names]


def test_steps_come_back_exactly(folder):
    trace = Trace.open(folder, verify_hashes=True)
    steps = trace.steps()
    assert steps is not None
    assert steps.tobytes() == two_steps().tobytes()
    assert trace.validate().num_steps == 2


def test_a_step_of_several_drafters_may_be_deeper_than_the_one_of_most(tmp_path):
    drafters = (drafter("short", max_depth=1), drafter("deep", max_depth=2))
    writer = TraceWriter(tmp_path / "trace", manifest(*drafters))
    nothing = RecordedBlocks([0], [0], [0], [[]])
    writer.add(RequestRow(1, "chat", 1, 1, "stop"), {"short": nothing, "deep": nothing})
    writer.finish(steps=two_steps())
    assert Trace.open(tmp_path / "trace").steps()["depth"].tolist() == [2, 0]


def test_a_trace_without_steps_says_so(tmp_path, folder):
    assert Trace.open(folder).slice(out=tmp_path / "copy").steps() is None


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("arm", 1, "1; allowed: -1 to 0"),
        ("arm", -2, "-2; allowed: -1 to 0"),
        ("depth", 3, "3, above 2; allowed: 0 to the deepest drafter's max_depth"),
        ("num_drafted", 7, "7, above 6; allowed: 0 to batch x depth"),
        ("num_verified", 7, "7, above 6; allowed: 0 to num_drafted"),
        ("num_tested", 6, "6, above 5; allowed: 0 to num_verified"),
        ("num_accepted", 5, "5, above 4; allowed: 0 to num_tested"),
        ("num_emitted", -1, "-1; allowed: at least 0"),
        ("verify_seconds", -1.0, "-1.0; allowed: finite seconds, at least 0"),
        ("verify_seconds", math.nan, "nan; allowed: finite seconds, at least 0"),
        ("draft_seconds", math.inf, "inf; allowed: finite seconds, at least 0"),
        ("started_at", None, "null; allowed: a value in every row"),
    ],
)
def test_a_fault_of_the_steps_is_named_with_file_column_and_row(folder, column, value, expected):
    spoil(folder, "steps.parquet", set_value(column, 0, value))
    with pytest.raises(InputError) as caught:
        Trace.open(folder).validate()
    assert str(caught.value) == f"{folder / 'steps.parquet'}: column {column!r}, row 0: {expected}"


def test_a_plain_step_has_no_depth(folder):
    spoil(folder, "steps.parquet", set_value("depth", 1, 1))
    with pytest.raises(InputError, match="column 'depth', row 1: 1, above 0"):
        Trace.open(folder).validate()


def test_a_missing_steps_column_is_named(folder):
    spoil(folder, "steps.parquet", lambda table: table.drop_columns(["arm"]))
    with pytest.raises(InputError, match=r"steps\.parquet: column 'arm' is missing"):
        Trace.open(folder).validate()
    assert pq.read_metadata(folder / "steps.parquet").num_columns == len(STEP_COLUMNS) - 1
