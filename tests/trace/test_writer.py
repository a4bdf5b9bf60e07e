from __future__ import annotations

import json

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.trace import RecordedBlocks, RequestRow, Trace, TraceWriter
from tests.trace.traces import drafter, manifest, recorded


def row(request_id: int, length: int = 5, **changes) -> RequestRow:
    fields = {"request_id": request_id, "domain": "chat", "num_prompt_tokens": 3, "finish_reason": "stop"}
    return RequestRow(num_output_tokens=length, **(fields | changes))


def one_drafter(length: int = 5) -> dict[str, RecordedBlocks]:
    return {"only": recorded(np.random.default_rng(length), length, 4)}


@pytest.fixture
def writer(tmp_path):
    return TraceWriter(tmp_path / "trace", manifest(drafter("only")))


def test_what_is_written_comes_back_bit_for_bit(tmp_path, writer):
    given = {request: one_drafter(length) for request, length in ((7, 5), (3, 8))}
    for request, blocks in given.items():
        writer.add(row(request, len(blocks["only"].num_drafts)), blocks)
    writer.finish()
    trace = Trace.open(tmp_path / "trace", verify_hashes=True)
    assert trace.requests.request_id.tolist() == [3, 7]
    for index, request in enumerate((3, 7)):
        blocks, expected = trace.blocks(index, 0), given[request]["only"]
        for name in ("num_drafts", "num_accepted", "num_verified"):
            assert getattr(blocks, name).tolist() == getattr(expected, name).tolist()
        drafted = np.arange(4) < expected.num_drafts[:, None]
        confidence = blocks.scores["drawn_prob"]
        assert confidence.tobytes() == np.where(drafted, expected.confidence, 0.0).astype(np.float64).tobytes()
        assert confidence.flags.c_contiguous


def test_ragged_lists_and_padded_arrays_are_written_alike(tmp_path):
    padded = RecordedBlocks([2, 0, 1], [0, 0, 1], [2, 0, 1], np.array([[0.5, 0.25], [9.0, 9.0], [1.0, 9.0]]))
    ragged = RecordedBlocks([2, 0, 1], [0, 0, 1], [2, 0, 1], [[0.5, 0.25], [], [1.0]])
    tables = []
    for name, blocks in (("padded", padded), ("ragged", ragged)):
        writer = TraceWriter(tmp_path / name, manifest(drafter("only")))
        writer.add(row(1, 3), {"only": blocks})
        writer.finish()
        tables.append(Trace.open(tmp_path / name).blocks(0, 0).scores["drawn_prob"].tolist())
    assert tables[0] == tables[1] == [[0.5, 0.25, 0, 0], [0, 0, 0, 0], [1.0, 0, 0, 0]]


def test_a_killed_run_loses_no_request_it_had_written(tmp_path, writer):
    writer.add(row(2), one_drafter())
    writer.add(row(1), one_drafter())
    del writer  # killed: nothing was finished, nothing was closed
    (tmp_path / "trace" / "parts" / "5.partial").write_bytes(b"PAR1 half a request")
    again = TraceWriter(tmp_path / "trace", manifest(drafter("only")), resume=True)
    assert again.done == {1, 2}
    again.add(row(3), one_drafter())
    again.finish()
    trace = Trace.open(tmp_path / "trace", verify_hashes=True)
    assert trace.requests.request_id.tolist() == [1, 2, 3]
    assert sorted(path.name for path in (tmp_path / "trace").iterdir()) == [
        "blocks.parquet", "manifest.json", "requests.parquet",
    ]  # fmt: skip


def test_a_resumed_trace_equals_one_written_in_one_go(tmp_path):
    for name in ("once", "twice"):
        for requests in ([1, 3, 8],) if name == "once" else ([3], [8, 1]):
            writer = TraceWriter(tmp_path / name, manifest(drafter("only")), resume=True)
            for request in requests:
                writer.add(row(request), one_drafter())
        writer.finish()
    assert Trace.open(tmp_path / "once").requests.request_id.tolist() == [1, 3, 8]
    once, twice = ((tmp_path / name / "blocks.parquet").read_bytes() for name in ("once", "twice"))
    assert once == twice


def test_a_partly_written_trace_is_continued_only_when_asked_and_only_as_it_was_begun(tmp_path, writer):
    writer.add(row(1), one_drafter())
    with pytest.raises(InputError, match="partly written trace; allowed: resume it"):
        TraceWriter(tmp_path / "trace", manifest(drafter("only")))
    with pytest.raises(InputError, match=r"started with another 'target', '.+' instead of 'another'; allowed: resume"):
        TraceWriter(tmp_path / "trace", manifest(drafter("only"), target="another"), resume=True)


def test_what_differs_of_a_long_description_is_told(tmp_path):
    TraceWriter(tmp_path, manifest(drafter("only"), how="Recorded with care, 2 of each file in turn. " + 99 * "x"))
    other = manifest(drafter("only"), how="Recorded with care, 3 of each file in turn. " + 99 * "x")
    with pytest.raises(InputError, match=r"another 'how', '2 of each file in turn. x*' instead of '3 of each file in"):
        TraceWriter(tmp_path, other, resume=True)


def test_a_finished_trace_is_not_overwritten(tmp_path, writer):
    writer.add(row(1), one_drafter())
    writer.finish()
    for resume in (False, True):
        with pytest.raises(InputError, match="holds a finished trace"):
            TraceWriter(tmp_path / "trace", manifest(drafter("only")), resume=resume)


def test_a_partly_written_trace_is_no_trace(tmp_path, writer):
    writer.add(row(1), one_drafter())
    with pytest.raises(InputError, match=r"a recording that was cut short; .* --resume"):
        Trace.open(tmp_path / "trace")


def test_a_request_is_written_once(writer):
    writer.add(row(1), one_drafter())
    with pytest.raises(InputError, match="request 1 is written already"):
        writer.add(row(1), one_drafter())


def test_an_empty_trace_is_refused(writer):
    with pytest.raises(InputError, match="no request was added"):
        writer.finish()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"request_id": -1}, "request_id -1"),
        ({"request_id": 2**63}, "request_id 9223372036854775808"),
        ({"num_prompt_tokens": 0}, "num_prompt_tokens 0"),
        ({"num_prompt_tokens": 1.5}, "num_prompt_tokens 1.5"),
        ({"finish_reason": "eos"}, "finish_reason 'eos'; allowed: stop or length"),
        ({"arrival_at": -0.5}, "arrival_at -0.5"),
        ({"arrival_at": float("nan")}, "arrival_at nan"),
    ],
)
def test_a_wrong_request_is_refused_when_it_is_added(writer, changes, expected):
    with pytest.raises(InputError, match=expected):
        writer.add(row(**({"request_id": 1} | changes)), one_drafter())
    assert writer.done == set()


def test_wrong_blocks_are_refused_when_they_are_added(tmp_path, writer):
    good = one_drafter()["only"]
    wrong = {
        "above": RecordedBlocks(good.num_drafts, good.num_drafts + 1, good.num_verified, good.confidence),
        "in \\[0, 1\\]": RecordedBlocks(good.num_drafts, good.num_accepted, good.num_verified, good.confidence + 2),
        "censored": RecordedBlocks([2] * 5, [0] * 5, [1] * 5, good.confidence),
        "no row at position 4": RecordedBlocks([1] * 4, [0] * 4, [1] * 4, [[0.5]] * 4),
        "entries a row": RecordedBlocks([4] * 5, [0] * 5, [4, 4, 3, 2, 1], good.confidence[:, :3]),
        "column 'num_verified' has 4 rows; allowed: 5": RecordedBlocks([2] * 5, [0] * 5, [2] * 4, good.confidence),
        "column 'confidence' has 3 rows": RecordedBlocks([2] * 5, [0] * 5, [2] * 5, good.confidence[:3]),
        "entries for": RecordedBlocks([2] * 5, [0] * 5, [2, 2, 2, 2, 1], [[0.5]] * 5),
    }
    for expected, blocks in wrong.items():
        with pytest.raises(InputError, match=expected):
            writer.add(row(1), {"only": blocks})
    with pytest.raises(InputError, match="'other' is not a drafter of the manifest; allowed: only"):
        writer.add(row(1), {"other": good})
    assert list((tmp_path / "trace" / "parts").glob("*.parquet")) == []


def test_drafters_may_record_different_columns(tmp_path):
    entries = (drafter("plain", scores=("drawn_prob", "max_prob")), drafter("rich", scores=("margin", "max_prob")))
    writer = TraceWriter(tmp_path / "trace", manifest(*entries))
    plain = RecordedBlocks([1, 1], [0, 0], [1, 1], [[0.5], [0.25]])
    rich = RecordedBlocks(
        [1, 1], [0, 0], [1, 1], [[0.5], [0.25]], confidence_max=[[0.75], [1.0]], margin=[[2.0], [3.0]]
    )
    writer.add(row(1, 2), {"plain": plain, "rich": rich})
    writer.finish()
    trace = Trace.open(tmp_path / "trace")
    trace.validate()
    assert trace.blocks(0, 0).scores["max_prob"][:, 0].tolist() == [0.5, 0.25]
    assert trace.blocks(0, 1).scores["max_prob"][:, 0].tolist() == [0.75, 1.0]
    assert trace.blocks(0, 1).scores["margin"][:, 0].tolist() == [2.0, 3.0]
    with pytest.raises(InputError, match="column 'margin' was not recorded for drafter 'plain'"):
        trace.column(0, 0, "margin")


def test_requests_may_record_different_columns(tmp_path, writer):
    writer.add(row(1), one_drafter())
    only = one_drafter()["only"]
    tokens = np.arange(20).reshape(5, 4)
    writer.add(
        row(2),
        {"only": RecordedBlocks(only.num_drafts, only.num_accepted, only.num_verified, only.confidence,
                                draft_token_ids=tokens)},
    )  # fmt: skip
    writer.finish()
    trace = Trace.open(tmp_path / "trace")
    drafted = np.arange(4) < only.num_drafts[:, None]
    assert trace.column(1, 0, "draft_token_ids").tolist() == np.where(drafted, tokens, 0).tolist()
    with pytest.raises(InputError, match="draft_token_ids"):
        trace.column(0, 0, "draft_token_ids")


def test_the_manifest_lists_the_hash_of_every_file(tmp_path, writer):
    writer.add(row(1), one_drafter())
    finished = writer.finish()
    assert set(finished.files) == {"requests.parquet", "blocks.parquet"}
    assert json.loads((tmp_path / "trace" / "manifest.json").read_text())["files"] == finished.files
