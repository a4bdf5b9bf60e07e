from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specsim.errors import InputError
from specsim.trace import Trace, TraceWriter
from specsim.trace.blocks import decode_rows
from specsim.trace.check import check_rows
from specsim.trace.encode import RecordedBlocks, RequestRow
from tests.trace.traces import drafter, drop_row, edit_manifest, manifest, reseal, retype, spoil, write_small


def same_blocks(left, right) -> bool:
    arrays = [(getattr(b, n) for n in ("num_drafts", "num_accepted", "num_verified")) for b in (left, right)]
    counts = all(a.tobytes() == b.tobytes() for a, b in zip(*arrays, strict=True))
    return counts and all(left.scores[s].tobytes() == right.scores[s].tobytes() for s in left.scores)


def everything(trace):
    return [trace.blocks(index, arm) for index in range(len(trace)) for arm in range(len(trace.drafters))]


def test_opening_reads_no_list_column(folder, monkeypatch):
    asked = []
    read = pq.ParquetFile.read_row_group

    def spy(self, group, columns=None, **options):
        asked.append(columns)
        return read(self, group, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", spy)
    trace = Trace.open(folder)
    assert asked == [["request_id"]]
    trace.blocks(0, 0)
    assert len(asked) == 2


def test_decoded_row_groups_are_kept_up_to_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr("specsim.trace.files.ROW_GROUP_ROWS", 1)
    folder = write_small(tmp_path / "trace", lengths=(50,) * 6)
    assert pq.ParquetFile(folder / "blocks.parquet").num_row_groups == 6
    decoded = []
    for cache_bytes, expected in ((1, [0, 1, 0, 1]), (10**6, [0, 1])):
        trace = Trace.open(folder, cache_bytes=cache_bytes)
        decode = trace._table.decode
        monkeypatch.setattr(trace._table, "decode", lambda group, decode=decode: decoded.append(group) or decode(group))
        for index in (0, 0, 1, 0, 1):
            trace.blocks(index, 0)
        assert decoded == expected
        decoded.clear()


def test_the_least_recently_used_row_group_is_dropped_first(tmp_path, monkeypatch):
    monkeypatch.setattr("specsim.trace.files.ROW_GROUP_ROWS", 1)
    folder = write_small(tmp_path / "trace", lengths=(50,) * 3)
    trace = Trace.open(folder, cache_bytes=0)
    trace._table._cache_bytes = 2 * trace._table.rows(0).num_bytes + 1000
    for index in (0, 1, 0, 2):
        trace.blocks(index, 0)
    assert list(trace._table._kept) == [0, 2]


def test_scores_are_zero_beyond_the_drafts_and_read_only(folder):
    for blocks in everything(Trace.open(folder)):
        beyond = np.arange(blocks.scores["drawn_prob"].shape[1]) >= blocks.num_drafts[:, None]
        assert (blocks.scores["drawn_prob"][beyond] == 0.0).all()
        with pytest.raises(ValueError, match="read-only"):
            blocks.scores["drawn_prob"][0, 0] = 1.0
        with pytest.raises(ValueError, match="read-only"):
            blocks.num_accepted[0] = 1


def test_a_greedy_drafter_s_drawn_probability_is_its_largest(folder):
    for blocks in everything(Trace.open(folder)):
        assert blocks.scores["max_prob"].tobytes() == blocks.scores["drawn_prob"].tobytes()


def test_the_shifted_score_is_the_one_before(tmp_path):
    writer = TraceWriter(tmp_path / "trace", manifest(drafter("only", scores=("drawn_prob", "shifted_prob"))))
    blocks = RecordedBlocks([3, 1, 0], [0, 0, 0], [3, 1, 0], [[0.5, 0.25, 0.75], [0.5], []])
    writer.add(RequestRow(1, "chat", 1, 3, "stop"), {"only": blocks})
    writer.finish()
    shifted = Trace.open(tmp_path / "trace").blocks(0, 0).scores["shifted_prob"]
    assert shifted.tolist() == [[1.0, 0.5, 0.25, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]


def test_the_order_of_a_request_s_rows_does_not_matter(folder):
    expected = everything(Trace.open(folder))
    rng = np.random.default_rng(5)
    order = np.concatenate([start + rng.permutation(stop - start) for start, stop in ((0, 12), (12, 30), (30, 38))])
    spoil(folder, "blocks.parquet", lambda table: table.take(order))
    trace = Trace.open(folder)
    trace.validate()
    assert all(map(same_blocks, everything(trace), expected))


def test_a_request_may_span_row_groups(folder):
    expected = everything(Trace.open(folder))
    table = pq.read_table(folder / "blocks.parquet")
    pq.write_table(table.take(np.r_[np.arange(12)[::-1], 12:38]), folder / "blocks.parquet", row_group_size=5)
    reseal(folder)
    trace = Trace.open(folder)
    assert trace.validate().num_rows == 38
    assert all(map(same_blocks, everything(trace), expected))


def test_a_blocks_folder_reads_like_one_file(folder):
    expected = everything(Trace.open(folder))
    table = pq.read_table(folder / "blocks.parquet")
    (folder / "blocks").mkdir()
    for part, (start, stop) in enumerate(((0, 7), (7, 30), (30, 38))):
        pq.write_table(table.slice(start, stop - start), folder / "blocks" / f"part-{part}.parquet")
    (folder / "blocks.parquet").unlink()

    def relist(record):
        record["files"].pop("blocks.parquet")
        record["files"].update({f"blocks/part-{part}.parquet": "0" * 64 for part in range(3)})

    edit_manifest(folder, relist)
    reseal(folder)
    trace = Trace.open(folder, verify_hashes=True)
    assert trace.validate().num_rows == 38
    assert all(map(same_blocks, everything(trace), expected))


def test_wider_and_narrower_types_read_alike(folder):
    expected = everything(Trace.open(folder))
    for column, kind in (
        ("position", pa.int64()),
        ("num_drafts", pa.uint8()),
        ("num_accepted", pa.int8()),
        ("drafter", pa.large_string()),
        ("confidence", pa.large_list(pa.float64())),
    ):
        spoil(folder, "blocks.parquet", retype(column, kind))
    trace = Trace.open(folder)
    trace.validate()
    assert all(map(same_blocks, everything(trace), expected))


def test_a_fault_of_the_rows_is_found_when_they_are_read(folder):
    spoil(folder, "blocks.parquet", drop_row(8))
    trace = Trace.open(folder)
    trace.blocks(0, 0)
    with pytest.raises(InputError, match="request 10 has 5 rows for drafter 'exit'; allowed: one at each of its 6"):
        trace.blocks(0, 1)


def test_a_trajectory_trace_gives_its_visits_and_no_blocks(folder):
    spoil(folder, "blocks.parquet", drop_row(8))
    edit_manifest(folder, lambda record: record.update(kind="trajectory"))
    trace = Trace.open(folder)
    positions, blocks = trace.visits(0, 1)
    assert positions.tolist() == [0, 1, 3, 4, 5]
    assert len(blocks.num_drafts) == 5
    with pytest.raises(InputError, match="a trajectory trace has only the positions that one policy visited"):
        trace.blocks(0, 0)


def test_a_trajectory_request_may_have_no_visits(folder):
    spoil(folder, "blocks.parquet", lambda table: table.slice(0, 30))
    edit_manifest(folder, lambda record: record.update(kind="trajectory"))
    positions, blocks = Trace.open(folder).visits(2, 1)
    assert len(positions) == len(blocks.num_drafts) == 0
    assert blocks.scores["drawn_prob"].shape == (0, 3)


def test_visits_of_a_position_indexed_trace_are_all_positions(folder):
    positions, blocks = Trace.open(folder).visits(1, 0)
    assert positions.tolist() == list(range(9))
    assert same_blocks(blocks, Trace.open(folder).blocks(1, 0))


def test_a_trace_travels_to_another_process_by_its_path(folder):
    trace = Trace.open(folder)
    copy = pickle.loads(pickle.dumps(trace))
    assert all(map(same_blocks, everything(copy), everything(trace)))
    view = pickle.loads(pickle.dumps(trace.slice(requests=[2, 0])))
    assert view.requests.request_id.tolist() == [12, 10]
    assert same_blocks(view.blocks(0, 1), trace.blocks(2, 1))


def test_a_hash_is_compared_when_asked(folder):
    Trace.open(folder, verify_hashes=True)
    edit_manifest(folder, lambda record: record["files"].update({"requests.parquet": "0" * 64}))
    Trace.open(folder)
    with pytest.raises(InputError, match="sha256 is"):
        Trace.open(folder, verify_hashes=True)


def test_a_shipped_trace_opens_by_its_name(tmp_path, monkeypatch):
    write_small(tmp_path / "traces" / "tiny")
    monkeypatch.chdir(tmp_path)
    assert len(Trace.open("tiny")) == 3


def test_lists_that_do_not_lie_in_order_are_read_and_judged_alike(folder):
    table = pq.read_table(folder / "blocks.parquet")
    blocks = decode_rows(table, ["ngram", "exit"], folder, 0)
    confidence = blocks.lists["confidence"]
    order = np.random.default_rng(1).permutation(len(confidence.length))
    moved = np.concatenate([confidence.values[confidence.start[i] :][: confidence.length[i]] for i in order])
    start = np.zeros_like(confidence.start)
    start[order] = np.cumsum(confidence.length[order]) - confidence.length[order]
    scattered = replace(blocks, lists={"confidence": replace(confidence, start=start, values=moved)})
    specs, rows = Trace.open(folder).drafters, np.arange(12)
    assert scattered.lists["confidence"].dense(rows, blocks.num_drafts[rows], 4).tobytes() == (
        confidence.dense(rows, blocks.num_drafts[rows], 4).tobytes()
    )
    tokens = np.repeat([6, 9, 4], [12, 18, 8])
    check_rows(scattered, specs, tokens)
    moved[start[blocks.num_drafts > 1][0] + 1] = 2.0
    row = int(np.flatnonzero(blocks.num_drafts > 1)[0])
    with pytest.raises(InputError, match=f"column 'confidence', row {row}: 2.0 at draft 2"):
        check_rows(scattered, specs, tokens)
