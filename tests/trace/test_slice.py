from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from specsim.errors import InputError
from specsim.trace import Trace
from tests.trace.test_reader import same_blocks
from tests.trace.traces import write_small


def test_a_slice_is_a_view_of_the_requests_kept(folder):
    trace = Trace.open(folder)
    view = trace.slice(requests=[2, 0])
    assert view.requests.request_id.tolist() == [12, 10]
    assert view.requests.num_output_tokens.tolist() == [4, 6]
    assert same_blocks(view.blocks(0, 1), trace.blocks(2, 1))
    assert same_blocks(view.blocks(1, 0), trace.blocks(0, 0))


def test_slices_nest(folder):
    view = Trace.open(folder).slice(requests=slice(1, None)).slice(requests=[1])
    assert view.requests.request_id.tolist() == [12]
    assert same_blocks(view.blocks(0, 1), Trace.open(folder).blocks(2, 1))


def test_a_domain_keeps_its_requests(folder):
    trace = Trace.open(folder)
    assert trace.slice(domains=["chat"]).requests.request_id.tolist() == [10, 12]
    assert trace.slice(domains=["chat", "code"]).requests.request_id.tolist() == [10, 11, 12]
    assert trace.slice(domains=["code"], requests=slice(0, 2)).requests.request_id.tolist() == [11]


@pytest.mark.parametrize("wanted", [[2, 0], [1], [0, 1, 2]])
def test_a_written_slice_is_a_valid_trace_of_its_own(folder, tmp_path, wanted):
    trace = Trace.open(folder)
    copy = trace.slice(requests=wanted, out=tmp_path / "copy")
    assert copy.path == tmp_path / "copy"
    assert Trace.open(copy.path, verify_hashes=True).validate().num_requests == len(wanted)
    for index, source in enumerate(wanted):
        for arm in range(2):
            assert same_blocks(copy.blocks(index, arm), trace.blocks(source, arm))
    assert f"cut down to {len(wanted)} requests" in copy.manifest.how
    assert copy.requests.records() == trace.slice(requests=wanted).requests.records()


def test_a_written_slice_keeps_optional_columns(tmp_path):
    trace = Trace.open(write_small(tmp_path / "trace", lengths=(9, 9), margin=np.full((9, 4), 2.5)))
    copy = trace.slice(requests=[1], out=tmp_path / "copy")
    assert copy.column(0, 0, "margin").tolist() == trace.column(1, 0, "margin").tolist()
    assert copy.column(0, 0, "margin").max() == 2.5


def test_a_slice_of_many_row_groups_reads_each_once(tmp_path, monkeypatch):
    monkeypatch.setattr("specsim.trace.files.ROW_GROUP_ROWS", 30)
    trace = Trace.open(write_small(tmp_path / "trace", lengths=(8,) * 6))
    asked = []
    read = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda self, group, **o: asked.append(group) or read(self, group, **o)
    )
    trace.slice(requests=slice(1, 6), out=tmp_path / "copy")
    assert asked[: len(set(asked))] == [0, 1, 2]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"domains": ["maths"]}, "domain 'maths' is not in the trace; allowed: chat, code"),
        ({"requests": [0, 3]}, "requests 0 to 3; allowed: indices 0 to 2"),
        ({"requests": [-1]}, "requests -1 to -1; allowed: indices 0 to 2"),
        ({"requests": [1, 1]}, "an index twice"),
        ({"requests": []}, "no request is left"),
        ({"requests": slice(3, 9)}, "no request is left"),
        ({"domains": ["code"], "requests": [0]}, "no request is left"),
    ],
)
def test_a_selection_that_makes_no_trace_is_refused(folder, selection, expected):
    with pytest.raises(InputError, match=expected):
        Trace.open(folder).slice(**selection)


def test_a_slice_overwrites_nothing(folder, tmp_path):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "notes").write_text("mine")
    with pytest.raises(InputError, match="in use; allowed: a new or empty folder"):
        Trace.open(folder).slice(out=tmp_path / "copy")
    assert (tmp_path / "copy" / "notes").read_text() == "mine"
