"""A cost table on disk: manifest.json and cells.parquet in one folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from specsim.cost.cells import Cell, check_cells, from_parquet, sha256, to_parquet
from specsim.cost.meta import CostMeta, parse_meta
from specsim.errors import InputError
from specsim.shipped import shipped_path

MANIFEST = "manifest.json"
CELLS = "cells.parquet"


def read_table(path: str | Path) -> tuple[CostMeta, tuple[Cell, ...]]:
    """What a folder holds, checked.

    path     a folder, or the name of a shipped table
    Raises   InputError naming the file and what is wrong with it
    """
    folder = shipped_path("cost", path)
    meta = parse_meta(_read(folder / MANIFEST), str(folder / MANIFEST))
    data = _read(folder / CELLS)
    if meta.cells_sha256 != sha256(data):
        raise InputError(f"{folder / CELLS}: sha256 is {sha256(data)}, the manifest says {meta.cells_sha256}")
    cells = from_parquet(data, str(folder / CELLS))
    return meta, check_cells(cells, meta.capture_sizes, str(folder / CELLS))


def write_table(path: str | Path, meta: CostMeta, cells: Iterable[Cell]) -> None:
    """Write a table; each file appears whole or not at all, the manifest last."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    data = to_parquet(cells)
    _write(folder / CELLS, data)
    meta = meta.model_copy(update={"cells_sha256": sha256(data)})
    _write(folder / MANIFEST, (meta.model_dump_json(indent=1) + "\n").encode())


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from None


def _write(file: Path, data: bytes) -> None:
    temporary = file.with_name(file.name + ".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, file)
