"""Requests of a run under way, appended as they end and made a trace of once it is over."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

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

COUNTS = ("arm", "position", "num_drafts", "num_accepted", "num_verified")
SCORES = tuple(dict.fromkeys(SCORE_COLUMNS.values()))
SCHEMA = pa.schema(
    [pa.field(name, pa.int32()) for name in COUNTS]
    + [pa.field("draft_token_ids", pa.list_(pa.int32()))]
    + [pa.field(name, pa.list_(pa.float32())) for name in SCORES]
)


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

    folder  that the journal stands in; it stays mapped, not read, until a request is asked for
    """

    def __init__(self, folder: Path) -> None:
        self._entries: list[tuple[RequestRow, pa.RecordBatch]] = []
        path = folder / REQUESTS_JOURNAL
        if path.exists() and path.stat().st_size:
            with reading(path):
                self._entries = sorted(_batches(path), key=lambda entry: entry[0].request_id)

    def __len__(self) -> int:
        return len(self._entries)

    def blocks(self, specs: Sequence[DrafterSpec]) -> Iterator[tuple[RequestRow, dict[str, RecordedBlocks]]]:
        """Each request and what its drafters proposed, one at a time."""
        for row, batch in self._entries:
            yield row, _visited(batch).by_drafter(specs)


def _batches(path: Path) -> Iterator[tuple[RequestRow, pa.RecordBatch]]:
    """The whole batches of a journal, and the request of each."""
    file = pa.memory_map(str(path))
    try:
        stream = pa.ipc.open_stream(file)
        while True:
            batch, metadata = stream.read_next_batch_with_custom_metadata()
            batch.validate(full=True)
            yield RequestRow(**json.loads(metadata[REQUEST_KEY])), batch
    except (StopIteration, pa.ArrowInvalid, OSError):
        return  # the end, or the middle of what was being written when the run was killed


def _visited(batch: pa.RecordBatch) -> VisitedBlocks:
    counts = {name: batch.column(name).to_numpy() for name in COUNTS}
    lists = {name: batch.column(name).flatten().to_numpy() for name in ("draft_token_ids", *SCORES)}
    return VisitedBlocks(**counts, draft_token_ids=lists.pop("draft_token_ids"), scores=lists)
