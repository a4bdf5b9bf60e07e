"""The blocks table of a trace: row groups decoded on demand, the last used ones kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specsim.errors import InputError
from specsim.trace.blocks import BlockRows, Pieces, decode_rows
from specsim.trace.check import check_resolved, check_rows
from specsim.trace.index import RowIndex, index_rows
from specsim.trace.manifest import Manifest
from specsim.trace.parquet import open_parquet, reading
from specsim.trace.requests import Requests
from specsim.trace.schema import BLOCK_COLUMNS, SCORE_COLUMNS, check_columns


class BlocksTable:
    """Memory-mapped blocks files, read row group by row group.

    index  where each request's rows lie
    """

    def __init__(self, paths: Sequence[Path], manifest: Manifest, requests: Requests, cache_bytes: int) -> None:
        """Open `paths` and index their rows; decoded row groups are kept up to `cache_bytes` in all.

        Raises InputError for a damaged file, a wrong column, or rows of an unknown request.
        """
        self.paths = tuple(paths)
        self.manifest = manifest
        self.specs = manifest.specs
        self.files = [self._open(path) for path in self.paths]
        self.index: RowIndex = index_rows(self.paths, self.files, requests.request_id)
        self._names = [spec.name for spec in self.specs]
        self._num_output_tokens = requests.num_output_tokens
        self._cache_bytes = cache_bytes
        self._kept: OrderedDict[int, BlockRows] = OrderedDict()
        self._kept_bytes = 0

    def _open(self, path: Path) -> pq.ParquetFile:
        file = open_parquet(path, ["drafter"])
        with reading(path):
            schema = file.schema_arrow
            check_columns(schema, BLOCK_COLUMNS, path)
        for spec in self.specs:
            for score in spec.scores:
                served = score == "max_prob" and spec.law == "point_mass"
                if SCORE_COLUMNS[score] not in schema.names and not served:
                    raise InputError(
                        f"{path}: column {SCORE_COLUMNS[score]!r} is missing, though drafter {spec.name!r} offers "
                        f"{score}; allowed: a list in every row of that drafter"
                    )
        return file

    def read(self, group: int) -> pa.Table:
        """Row group `group` of the index, as written."""
        where = self.index.groups[group]
        path = self.paths[where.file]
        with reading(path):
            table = self.files[where.file].read_row_group(where.group, use_threads=False)
            if len(table) != where.num_rows:
                raise InputError(
                    f"{path}: row group {where.group} has columns of different lengths; allowed: one length"
                )
            return table

    def decode(self, group: int) -> BlockRows:
        """Row group `group` of the index, every row checked; not kept."""
        where = self.index.groups[group]
        path = self.paths[where.file]
        table = self.read(group)
        with reading(path):
            rows = decode_rows(table, self._names, path, where.first_row)
        runs = slice(*np.searchsorted(self.index.group, [group, group + 1]).tolist())
        owner = np.repeat(self.index.request[runs], self.index.stop[runs] - self.index.start[runs])
        tokens = self._num_output_tokens[owner]
        check_rows(rows, self.specs, tokens)
        if self.manifest.kind == "position_indexed":
            check_resolved(rows, tokens)
        return rows

    def rows(self, group: int) -> BlockRows:
        """Row group `group` of the index, decoded again only when it has not been used for long."""
        if group in self._kept:
            self._kept.move_to_end(group)
            return self._kept[group]
        rows = self.decode(group)
        self._kept[group] = rows
        self._kept_bytes += rows.num_bytes
        while self._kept_bytes > self._cache_bytes and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popitem(last=False)[1].num_bytes
        return rows

    def pieces(self, request: int, drafter: int) -> Pieces:
        """The rows of one request (its row in requests.parquet) and drafter, in file order."""
        found = []
        for group, start, stop in self.index.runs(request):
            rows = self.rows(group)
            found.append((rows, start + np.flatnonzero(rows.drafter[start:stop] == drafter)))
        return found
