"""Taking some requests out of a trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from specsim.errors import InputError
from specsim.trace.files import new_folder, seal, write_blocks, write_requests
from specsim.trace.manifest import BLOCKS_FILE, REQUESTS_FILE, Manifest
from specsim.trace.requests import Requests
from specsim.trace.schema import BLOCK_COLUMNS, arrow_schema, conform
from specsim.trace.table import BlocksTable


def select(
    requests: Requests, domains: Iterable[str] | None, indices: slice | Sequence[int] | np.ndarray | None
) -> np.ndarray:
    """The indices [M] int64 of the requests kept, in the order given.

    Raises InputError for an unknown domain, an index out of range or twice, or nothing left.
    """
    total = len(requests)
    if indices is None or isinstance(indices, slice):
        kept = np.arange(total)[indices or slice(None)]
    else:
        kept = np.asarray(indices, dtype=np.int64)
        if len(kept) and not (kept.min() >= 0 and kept.max() < total):
            raise InputError(f"requests {kept.min()} to {kept.max()}; allowed: indices 0 to {total - 1}")
        if len(np.unique(kept)) != len(kept):
            raise InputError("requests hold an index twice; allowed: each at most once")
    if domains is not None:
        wanted = list(domains)
        for name in wanted:
            if name not in requests.domains:
                raise InputError(f"domain {name!r} is not in the trace; allowed: {', '.join(requests.domains)}")
        codes = [requests.domains.index(name) for name in wanted]
        kept = kept[np.isin(requests.domain[kept], codes)]
    if len(kept) == 0:
        raise InputError("no request is left in the slice; allowed: at least one")
    return kept


def write_slice(out: Path, manifest: Manifest, requests: Requests, table: BlocksTable, rows: np.ndarray) -> None:
    """Write `requests`, which are the requests `rows` of the `table`, as a trace of their own.

    rows  [N] int64, row of each request in the requests.parquet that `table` belongs to
    """
    new_folder(out)
    write_requests(out / REQUESTS_FILE, requests.records())
    write_blocks(out / BLOCKS_FILE, _tables(table, rows))
    how = f"{manifest.how} Then cut down to {len(rows)} requests."
    seal(out, manifest.model_copy(update={"how": how}))


def _tables(table: BlocksTable, rows: np.ndarray) -> Iterator[pa.Table]:
    names = {name for file in table.files for name in file.schema_arrow.names}
    schema = arrow_schema(BLOCK_COLUMNS, names)
    held, last = None, -1
    for row in rows.tolist():
        for group, start, stop in table.index.runs(row):
            if group != last:
                held, last = table.read(group), group
            assert held is not None
            yield conform(held.slice(start, stop - start), schema)
