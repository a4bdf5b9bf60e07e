"""Reading Parquet files so that a damaged one gives one line, never a traceback."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specsim.errors import InputError


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever a damaged or unreadable Parquet file raises into one InputError naming `path`."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: missing; allowed: a Parquet file") from None
    except (pa.ArrowException, OSError, ValueError, KeyError, IndexError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: damaged or not Parquet: {reason[:160]}; allowed: a complete Parquet file") from None


def open_parquet(path: Path, dictionaries: list[str]) -> pq.ParquetFile:
    """`path` memory-mapped, footer read; `dictionaries` names the string columns to keep as codes."""
    with reading(path):
        if path.is_dir():
            raise InputError(f"{path}: a folder; allowed: a Parquet file")
        return pq.ParquetFile(path, memory_map=True, read_dictionary=dictionaries, page_checksum_verification=True)


def strings(column: pa.ChunkedArray) -> tuple[np.ndarray, tuple[str, ...]]:
    """`column` as [N] int64 codes (-1 where null) and the names they index."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    array = encoded.unify_dictionaries().combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    array.validate(full=True)
    codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, tuple("" if name is None else name for name in array.dictionary.to_pylist())


def integers(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """`column` as [N] int64 values, exact (0 where null), and [N] bool, whether a value is there."""
    there = column.is_valid().to_numpy()
    return column.fill_null(0).cast(pa.int64()).to_numpy().astype(np.int64, copy=False), there


def floats(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """`column` as [N] float64 values (0 where null), and [N] bool, whether a value is there."""
    there = column.is_valid().to_numpy()
    return column.fill_null(0.0).cast(pa.float64()).to_numpy().astype(np.float64, copy=False), there


def file_sha256(path: Path) -> str:
    """The sha256 of the file at `path`, lower-case hex."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; allowed: a readable file") from None
