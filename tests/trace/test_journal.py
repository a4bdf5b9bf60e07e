"""A journal of requests: what comes back, in which order, and what a kill leaves of it."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.trace import RequestRow, Trace, TraceWriter
from specsim.trace.journal import REQUESTS_JOURNAL, SCHEMA, JournalledRequests, RequestJournal, VisitedBlocks
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
def test_a_request_cut_anywhere_costs_only_itself_and_is_no_damage(tmp_path, kept):
    _, journal = journalled(tmp_path, 1)
    path = tmp_path / REQUESTS_JOURNAL
    whole = path.stat().st_size
    journal.append(request(2), visited())
    second = path.stat().st_size - whole
    for size in {whole + kept, whole + second // 2, whole + second - 1}:
        path.write_bytes(path.read_bytes()[:size].ljust(size, b"\0"))
        assert ids(tmp_path) == ([1], "")


def ids(folder):
    """Requests of a journal, and what it says of damage."""
    found = JournalledRequests(folder)
    return [row.request_id for row, _ in found.blocks(SPECS)], found.damage


def places(folder, *numbers):
    """A journal of those requests, not closed: its file, and where each of them begins, and the last one ends."""
    _, journal = journalled(folder)
    path = folder / REQUESTS_JOURNAL
    found = [SCHEMA.serialize().size]
    for number in numbers:
        journal.append(request(number), visited(10 * number))
        found.append(path.stat().st_size)
    return path, found


def overwrite(path, start, data):
    content = path.read_bytes()
    path.write_bytes(content[:start] + data + content[start + len(data) :])


DAMAGES = {
    "its beginning": lambda size: (0, b"\x01" * 8),
    "a length that is too large": lambda size: (4, b"\xff\xff\xff\x7f"),
    "a length that is too small": lambda size: (4, (8).to_bytes(4, "little")),
    "an end of stream": lambda size: (4, bytes(4)),
    "a page that was never written": lambda size: (0, bytes(size)),
    "beginnings everywhere": lambda size: (0, b"\xff" * size),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_requests_behind_a_damaged_one_are_read_and_the_damage_is_told(tmp_path, damage):
    path, (_, second, third, _, end) = places(tmp_path, 1, 2, 3, 4)
    start, data = damage(third - second)
    overwrite(path, second + start, data)
    told = (
        f"{path}: damaged in the middle, not merely cut off at its end: {third - second} bytes from byte {second} on "
        "cannot be read, the 2 requests behind them can"
    )
    assert ids(tmp_path) == ([1, 3, 4], told)
    path.write_bytes(path.read_bytes()[: end - 1])  # cut off as well
    assert ids(tmp_path) == ([1, 3], told.replace("the 2 requests", "the 1 request"))


def test_a_damaged_request_is_not_taken_for_another_one(tmp_path):
    """Its own words are not believed, nor is anything inside it that begins as requests do."""
    writer, journal = journalled(tmp_path, 1)
    path = tmp_path / REQUESTS_JOURNAL
    start = path.stat().st_size
    journal.append(request(2), replace(visited(), draft_token_ids=np.full(5, -1)))
    end = path.stat().st_size
    journal.append(request(3), visited())
    overwrite(path, path.read_bytes().index(b'{"request_id": 2'), b"[")
    assert ids(tmp_path)[0] == [1, 3]
    assert f" {end - start} bytes from byte {start} on " in ids(tmp_path)[1]
    writer.finish_with(JournalledRequests(tmp_path).blocks(SPECS))
    assert Trace.open(tmp_path).validate().num_rows == 6


def test_every_damaged_place_is_counted_and_the_beginning_may_be_one(tmp_path):
    path, (first, _, third, fourth, _) = places(tmp_path, 1, 2, 3, 4)
    overwrite(path, 0, bytes(8))
    overwrite(path, third, bytes(8))
    read, told = ids(tmp_path)
    assert read == [1, 2, 4]
    assert f" {first + fourth - third} bytes in 2 places from byte 0 on cannot be read, the 3 requests behind" in told


def test_a_journal_that_was_closed_is_not_damaged(tmp_path):
    _, journal = journalled(tmp_path, 1, 2)
    journal.close()
    assert ids(tmp_path) == ([1, 2], "")


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
