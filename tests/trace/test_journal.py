"""A journal of requests: what comes back, in which order, and what a kill leaves of it."""

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.trace import RequestRow, Trace, TraceWriter
from specsim.trace.journal import REQUESTS_JOURNAL, JournalledRequests, RequestJournal, VisitedBlocks
from tests.trace.traces import drafter, manifest

ENTRIES = (drafter("first", max_depth=3), drafter("second", max_depth=2, scores=("drawn_prob", "margin")))
SPECS = tuple(entry.spec for entry in ENTRIES)


def request(number, num_output_tokens=9):
    return RequestRow(number, "chat", 5, num_output_tokens, "length", 0.5)


def visited(first_token=0):
    """Three blocks: of the first drafter 3 and 0 drafts, between them 2 of the second."""
    confidence = np.array([0.5, 0.25, 0.125, 0.75, 1.0])
    return VisitedBlocks(
        arm=np.array([0, 1, 0]),
        position=np.array([1, 4, 6]),
        num_drafts=np.array([3, 2, 0]),
        num_accepted=np.array([2, 1, 0]),
        num_verified=np.array([3, 2, 0]),
        draft_token_ids=first_token + np.arange(5),
        scores={"confidence": confidence, "confidence_max": np.zeros(5), "margin": np.array([0, 0, 0, 1.5, 2.5])},
    )


def journalled(folder, *numbers):
    """A writer, and a journal beside it that holds requests in the order given."""
    writer = TraceWriter(folder, manifest(*ENTRIES, kind="trajectory"))
    journal = RequestJournal(folder)
    for number in numbers:
        journal.append(request(number), visited(10 * number))
    return writer, journal


def test_requests_come_back_in_order_with_each_drafters_blocks(tmp_path):
    writer, journal = journalled(tmp_path, 2, 1)
    journal.close()
    writer.finish_with(JournalledRequests(tmp_path).blocks(SPECS))
    trace = Trace.open(tmp_path)
    assert trace.validate().num_rows == 6
    assert trace.requests.request_id.tolist() == [1, 2]
    positions, blocks = trace.visits(1, 1)
    assert positions.tolist() == [4]
    assert blocks.scores["drawn_prob"].tolist() == [[0.75, 1.0]]
    assert blocks.scores["margin"].tolist() == [[1.5, 2.5]]
    assert trace.column(1, 1, "draft_token_ids").tolist() == [[23, 24]]
    assert trace.visits(0, 0)[0].tolist() == [1, 6]
    assert trace.visits(0, 0)[1].num_accepted.tolist() == [2, 0]


def test_a_request_is_in_the_file_before_the_journal_is_closed(tmp_path):
    journalled(tmp_path, 4, 3)
    assert [row for row, _ in JournalledRequests(tmp_path).blocks(SPECS)] == [request(3), request(4)]


@pytest.mark.parametrize("kept", [0, 1, 40])
def test_a_request_cut_anywhere_costs_only_itself(tmp_path, kept):
    _, journal = journalled(tmp_path, 1)
    path = tmp_path / REQUESTS_JOURNAL
    whole = path.stat().st_size
    journal.append(request(2), visited())
    second = path.stat().st_size - whole
    for size in {whole + kept, whole + second // 2, whole + second - 1}:
        path.write_bytes(path.read_bytes()[:size].ljust(size, b"\0"))
        assert [row.request_id for row, _ in JournalledRequests(tmp_path).blocks(SPECS)] == [1]


def test_a_run_killed_before_its_first_request_ended_has_none(tmp_path):
    assert len(JournalledRequests(tmp_path)) == 0
    (tmp_path / REQUESTS_JOURNAL).write_bytes(b"")
    assert len(JournalledRequests(tmp_path)) == 0
    (tmp_path / REQUESTS_JOURNAL).write_bytes(b"\xff\xff")
    assert len(JournalledRequests(tmp_path)) == 0


def test_what_a_trace_could_not_hold_is_refused_when_it_is_made(tmp_path):
    writer = TraceWriter(tmp_path, manifest(*ENTRIES, kind="trajectory"))
    blocks = visited().by_drafter(SPECS)
    with pytest.raises(InputError, match="request 1 comes after 2; allowed: rising, each once"):
        writer.finish_with([(request(2), blocks), (request(1), blocks)])
    with pytest.raises(InputError, match=r"'position', row 4: 6 in an output of 6 tokens"):
        writer.finish_with([(request(1), blocks), (request(2, 6), blocks)])
    with pytest.raises(InputError, match="no request was added"):
        writer.finish_with([])
    writer.add(request(1), blocks)
    with pytest.raises(InputError, match="one by one; allowed: `finish`"):
        writer.finish_with([(request(2), blocks)])
