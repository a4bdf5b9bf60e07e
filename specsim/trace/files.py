"""The files of a trace's folder: written, found, and compared with the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specsim.errors import InputError
from specsim.trace.manifest import BLOCKS_FILE, REQUESTS_FILE, STEPS_FILE, Manifest, write_manifest
from specsim.trace.parquet import file_sha256
from specsim.trace.schema import LIST_COLUMNS, REQUEST_COLUMNS, arrow_schema

ROW_GROUP_ROWS = 8192
"""Rows of a row group at least, whole requests: what one look-up decodes."""

FILE_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 9,
    "use_dictionary": ["request_id", "drafter", "domain", "finish_reason"],
    "write_page_checksum": True,
}


def blocks_files(folder: Path, manifest: Manifest) -> list[Path]:
    """The blocks files of the trace in `folder`, in order of their names.

    Raises InputError when a listed file is missing, a data file is not listed, or there is not one blocks table.
    """
    for name in manifest.files:
        if not (folder / name).is_file():
            raise InputError(f"{folder / name}: missing, though the manifest lists it; allowed: every file it lists")
    found = [name for name in (REQUESTS_FILE, BLOCKS_FILE, STEPS_FILE) if (folder / name).exists()]
    found += sorted(f"blocks/{path.name}" for path in (folder / "blocks").glob("*.parquet"))
    for name in {REQUESTS_FILE: None, **dict.fromkeys(found)}:
        if name not in manifest.files:
            raise InputError(f"{folder / name}: no sha256 in the manifest's files; allowed: every data file is listed")
    single = BLOCKS_FILE in manifest.files
    parts = sorted(name for name in manifest.files if name.startswith("blocks/"))
    if single == bool(parts):
        raise InputError(
            f"{folder}: {'two blocks tables' if single else 'no blocks table'}; "
            f"allowed: {BLOCKS_FILE} or blocks/*.parquet"
        )
    return [folder / name for name in ([BLOCKS_FILE] if single else parts)]


def check_hashes(folder: Path, manifest: Manifest) -> None:
    """Raise InputError unless each file of `folder` has the sha256 that the manifest gives it."""
    for name, expected in manifest.files.items():
        found = file_sha256(folder / name)
        if found != expected:
            raise InputError(f"{folder / name}: sha256 is {found}; allowed: {expected}, as in the manifest")


def seal(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest with the sha256 of the data files in `folder`, which makes it a trace; returns it."""
    present = [name for name in (REQUESTS_FILE, BLOCKS_FILE, STEPS_FILE) if (folder / name).exists()]
    sealed = manifest.model_copy(update={"files": {name: file_sha256(folder / name) for name in present}})
    write_manifest(folder, sealed)
    return sealed


def check_new(path: Path) -> None:
    """Raise InputError when something is at `path` already, an empty folder excepted."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path}: in use; allowed: a new or empty folder")


def new_folder(path: Path) -> None:
    """Make the folder `path`; Raises InputError when something is there already, an empty folder excepted."""
    check_new(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; allowed: a folder that can be made") from None


def write_requests(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write requests.parquet; `rows` are the fields of RequestRow."""
    names = {name for row in rows for name, value in row.items() if value is not None}
    pq.write_table(pa.Table.from_pylist(list(rows), arrow_schema(REQUEST_COLUMNS, names)), path, **FILE_OPTIONS)


def write_blocks(path: Path, tables: Iterable[pa.Table]) -> None:
    """Write a blocks file of `tables`, each a request's rows, in row groups of whole requests."""
    writer: pq.ParquetWriter | None = None
    held: list[pa.Table] = []
    try:
        for table in tables:
            if writer is None:
                floats = [f"{f.name}.list.element" for f in table.schema if f.name in LIST_COLUMNS]
                floats = [name for name in floats if not name.startswith("draft_token_ids")]
                writer = pq.ParquetWriter(path, table.schema, use_byte_stream_split=floats, **FILE_OPTIONS)
            held.append(table)
            if sum(len(piece) for piece in held) >= ROW_GROUP_ROWS:
                _write_group(writer, held)
                held = []
        if writer is not None and held:
            _write_group(writer, held)
    finally:
        if writer is not None:
            writer.close()


def _write_group(writer: pq.ParquetWriter, tables: Sequence[pa.Table]) -> None:
    table = pa.concat_tables([piece.cast(writer.schema) for piece in tables]).unify_dictionaries()
    writer.write_table(table, row_group_size=max(1, len(table)))  # a request may have no rows
