"""Requests of a run under way, appended as they end and made a trace of once it is over."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from specsim.core import DrafterSpec
from specsim.trace.encode import RecordedBlocks, RequestRow
from specsim.trace.parquet import reading
from specsim.trace.schema import SCORE_COLUMNS
from specsim.trace.writer import REQUEST_KEY

REQUESTS_JOURNAL = "requests.partial"
"""An Arrow IPC stream: one record batch a request, the request itself in the batch's metadata."""

BUFFER_BYTES = 1 << 20
"""Room for a request's many small pieces, so that they are written at once."""

BEGINNING, ALIGNMENT = 0xFFFFFFFF, 8
"""How each message of such a stream begins, and of how many bytes its place is a multiple."""

UNREADABLE = (StopIteration, EOFError, pa.ArrowException, OSError, ValueError, KeyError, TypeError)
"""What reading a message raises that is damaged or not there in full."""

COUNTS = ("arm", "position", "num_drafts", "num_accepted", "num_verified")
SCORES = tuple(dict.fromkeys(SCORE_COLUMNS.values()))
SCHEMA = pa.schema(
    [pa.field(name, pa.int32()) for name in COUNTS]
    + [pa.field("draft_token_ids", pa.list_(pa.int32()))]
    + [pa.field(name, pa.list_(pa.float32())) for name in SCORES]
)

Entry: TypeAlias = tuple[RequestRow, pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class VisitedBlocks:
    """The blocks that one request visited, in order; those of V steps hold N drafts in all.

    arm, position, num_drafts, num_accepted, num_verified   [V] integers
    draft_token_ids   [N] integers
    scores            [N] floats each, by column of the trace; one that a block's drafter does not offer is 0 there
    """

    arm: np.ndarray
    position: np.ndarray
    num_drafts: np.ndarray
    num_accepted: np.ndarray
    num_verified: np.ndarray
    draft_token_ids: np.ndarray
    scores: dict[str, np.ndarray]

    def by_drafter(self, specs: Sequence[DrafterSpec]) -> dict[str, RecordedBlocks]:
        """The same as a `TraceWriter` takes it; a drafter that was never visited has no rows, but its columns.

        specs  of the run, index = arm
        """
        drafted = np.arange(self.num_drafts.max(initial=0)) < self.num_drafts[:, None]
        return {spec.name: self._of(arm, spec, drafted) for arm, spec in enumerate(specs)}

    def _of(self, arm: int, spec: DrafterSpec, drafted: np.ndarray) -> RecordedBlocks:
        own = self.arm == arm
        offered = {"confidence", *(SCORE_COLUMNS[score] for score in spec.scores)}
        return RecordedBlocks(
            num_drafts=self.num_drafts[own],
            num_accepted=self.num_accepted[own],
            num_verified=self.num_verified[own],
            position=self.position[own],
            draft_token_ids=_padded(self.draft_token_ids, drafted)[own],
            **{name: _padded(values, drafted)[own] for name, values in self.scores.items() if name in offered},
        )


def _padded(flat: np.ndarray, drafted: np.ndarray) -> np.ndarray:
    """[V, D], the entries of each row where `drafted` [V, D] is true, 0 elsewhere."""
    padded = np.zeros(drafted.shape, flat.dtype)
    padded[drafted] = flat
    return padded


class RequestJournal:
    """Appends requests to a file; each is the system's to write when `append` returns, so that a kill loses none.

    folder  that the trace will stand in
    """

    def __init__(self, folder: Path) -> None:
        self._file = (folder / REQUESTS_JOURNAL).open("wb", buffering=BUFFER_BYTES)
        self._stream = pa.ipc.new_stream(self._file, SCHEMA)

    def append(self, row: RequestRow, visited: VisitedBlocks) -> None:
        """Write one request down."""
        offsets = pa.array(np.append(0, np.cumsum(visited.num_drafts)), pa.int32())
        arrays = [pa.array(getattr(visited, name).astype(np.int32)) for name in COUNTS]
        arrays.append(pa.ListArray.from_arrays(offsets, pa.array(visited.draft_token_ids.astype(np.int32))))
        for name in SCORES:
            arrays.append(pa.ListArray.from_arrays(offsets, pa.array(visited.scores[name].astype(np.float32))))
        batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        self._stream.write_batch(batch, custom_metadata={REQUEST_KEY: json.dumps(asdict(row)).encode()})
        self._file.flush()

    def close(self) -> None:
        """End the file."""
        self._stream.close()
        self._file.close()


class JournalledRequests:
    """The requests of a journal, in order of request_id; one that a kill cut short at the end of the file is left out.

    folder  that the journal stands in; it stays mapped, not read, until a request is asked for, but behind damage
    damage  what cannot be read although requests follow it, in a line (empty: nothing but perhaps the file's end)
    """

    def __init__(self, folder: Path) -> None:
        self._entries: list[Entry] = []
        self.damage = ""
        path = folder / REQUESTS_JOURNAL
        if path.exists() and path.stat().st_size:
            with reading(path):
                entries, end = _from_beginning(path)
                behind = list(_behind(path, end))
            self._entries = sorted(
                [*entries, *(entry for _, _, entry in behind)], key=lambda entry: entry[0].request_id
            )
            self.damage = _damage(path, end, [(first, last) for first, last, _ in behind])

    def __len__(self) -> int:
        return len(self._entries)

    def blocks(self, specs: Sequence[DrafterSpec]) -> Iterator[tuple[RequestRow, dict[str, RecordedBlocks]]]:
        """Each request and what its drafters proposed, one at a time."""
        for row, batch in self._entries:
            yield row, _visited(batch).by_drafter(specs)


def _from_beginning(path: Path) -> tuple[list[Entry], int]:
    """The requests of a journal up to the first that cannot be read, and the byte where that one begins."""
    file = pa.memory_map(str(path))
    found: list[Entry] = []
    end = 0
    try:
        stream = pa.ipc.open_stream(file)
        while True:
            end = file.tell()
            found.append(_next(stream))
    except UNREADABLE:
        return found, end  # the end, the middle of what was being written when the run was killed, or damage


def _behind(path: Path, start: int) -> Iterator[tuple[int, int, Entry]]:
    """Requests behind a byte that cannot be read, each with the bytes where it begins and ends."""
    data = pa.memory_map(str(path)).read_buffer()
    heads = np.frombuffer(data, "<u4", data.size // 4)[start // 4 :: 2]
    for place in (start + ALIGNMENT * np.flatnonzero(heads == BEGINNING)).tolist():
        if place < start:
            continue  # inside a request that was read
        try:
            reader = pa.BufferReader(data)
            reader.seek(place)
            pa.ipc.read_message(reader)
            message = data.slice(place, reader.tell() - place)
            # A message alone does not hand out what is said of it; a stream does, which begins with the schema.
            entry = _next(pa.ipc.open_stream(SCHEMA.serialize().to_pybytes() + message.to_pybytes()))
        except UNREADABLE:
            continue
        start = place + message.size
        yield place, start, entry


def _next(stream: pa.RecordBatchStreamReader) -> Entry:
    batch, metadata = stream.read_next_batch_with_custom_metadata()
    batch.validate(full=True)
    return RequestRow(**json.loads(metadata[REQUEST_KEY])), batch


def _damage(path: Path, end: int, behind: Sequence[tuple[int, int]]) -> str:
    """What is between the requests that could be read.

    end     byte up to which the file could be read from its beginning
    behind  bytes where each request behind it begins and ends
    """
    ends = [end, *(last for _, last in behind)]
    gaps = [first - last for last, (first, _) in zip(ends, behind, strict=False) if first > last]
    if not gaps:
        return ""
    places = f" in {len(gaps)} places" if len(gaps) > 1 else ""
    readable = "the 1 request" if len(behind) == 1 else f"the {len(behind)} requests"
    return (
        f"{path}: damaged in the middle, not merely cut off at its end: {sum(gaps)} bytes{places} from byte {end} on "
        f"cannot be read, {readable} behind them can"
    )


def _visited(batch: pa.RecordBatch) -> VisitedBlocks:
    counts = {name: batch.column(name).to_numpy() for name in COUNTS}
    lists = {name: batch.column(name).flatten().to_numpy() for name in ("draft_token_ids", *SCORES)}
    return VisitedBlocks(**counts, draft_token_ids=lists.pop("draft_token_ids"), scores=lists)
