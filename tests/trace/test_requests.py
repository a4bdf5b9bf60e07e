from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specsim.trace import RecordedBlocks, RequestRow, Trace, TraceWriter
from tests.trace.traces import drafter, manifest, replace_column, spoil


def written(folder, *rows: RequestRow) -> Trace:
    writer = TraceWriter(folder, manifest(drafter("only", max_depth=1)))
    for row in rows:
        length = row.num_output_tokens
        writer.add(row, {"only": RecordedBlocks([1] * length, [0] * length, [1] * length, [[0.5]] * length)})
    writer.finish()
    return Trace.open(folder)


def test_case_40_an_id_beyond_float64_comes_back_exactly_beside_nulls(tmp_path):
    odd = 9007199254740993  # 2^53 + 1, which no float64 holds
    trace = written(
        tmp_path / "trace",
        RequestRow(odd - 1, "chat", 1, 2, "stop", arrival_at=None, prompt_id=None),
        RequestRow(odd, "chat", 1, 2, "stop", arrival_at=1.5, prompt_id=odd),
        RequestRow(2**60 + 1, "chat", 1, 2, "stop", arrival_at=None, prompt_id=2**63 - 1),
    )
    assert trace.requests.request_id.tolist() == [odd - 1, odd, 2**60 + 1]
    assert trace.requests.request_id.dtype == np.int64
    assert trace.requests.prompt_id.tolist() == [0, odd, 2**63 - 1]
    assert trace.requests.has_prompt_id.tolist() == [False, True, True]
    assert [math.isnan(at) for at in trace.requests.arrival_at] == [True, False, True]
    assert trace.requests.records()[2]["prompt_id"] == 2**63 - 1
    assert len(trace.blocks(1, 0).num_drafts) == 2


def test_case_40_holds_for_a_copy_too(tmp_path):
    odd = 9007199254740993
    trace = written(
        tmp_path / "trace",
        RequestRow(odd, "chat", 1, 2, "stop", prompt_id=odd),
        RequestRow(odd + 1, "chat", 1, 2, "stop"),
    )
    copy = trace.slice(requests=[1, 0], out=tmp_path / "copy")
    assert copy.requests.request_id.tolist() == [odd + 1, odd]
    assert copy.requests.prompt_id.tolist() == [0, odd]
    assert copy.requests.has_prompt_id.tolist() == [False, True]


def test_a_column_that_nobody_recorded_is_absent(tmp_path):
    trace = written(tmp_path / "trace", RequestRow(1, "chat", 1, 2, "stop"))
    assert "prompt_id" not in pq.read_schema(tmp_path / "trace" / "requests.parquet").names
    assert trace.requests.has_prompt_id.tolist() == [False]


def test_domains_and_finish_reasons_are_codes_of_names(folder):
    requests = Trace.open(folder).requests
    assert [requests.domains[code] for code in requests.domain] == ["chat", "code", "chat"]
    assert requests.finish_reason.tolist() == [0, 0, 0]
    assert requests.arrival_at.tolist() == [0.0, 0.5, 1.0]


def test_plain_strings_read_like_dictionaries(folder):
    expected = Trace.open(folder).requests
    spoil(
        folder,
        "requests.parquet",
        lambda table: replace_column(table, "domain", pa.array(table.column("domain").to_pylist(), pa.large_string())),
    )
    assert Trace.open(folder).requests.records() == expected.records()


def test_records_are_what_was_written(folder):
    assert Trace.open(folder).requests.records()[1] == {
        "request_id": 11,
        "domain": "code",
        "num_prompt_tokens": 5,
        "num_output_tokens": 9,
        "finish_reason": "stop",
        "arrival_at": 0.5,
        "prompt_id": None,
    }
