"""Finds recorded data by path or by the name it ships under in `traces/`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from specsim.errors import InputError

Kind: TypeAlias = Literal["trace", "cost"]

SUBFOLDER: dict[Kind, str] = {"trace": ".", "cost": "costs"}
NOUN: dict[Kind, str] = {"trace": "trace", "cost": "cost table"}


def shipped_folders(kind: Kind) -> tuple[Path, ...]:
    """Folders that hold shipped data: `traces/` of the working directory, of the clone, of the installed package."""
    package = Path(__file__).resolve().parent
    roots = (Path("traces"), package.parent / "traces", package / "traces")
    return tuple(root / SUBFOLDER[kind] for root in roots)


def shipped_path(kind: Kind, name: str | Path) -> Path:
    """Where the data that a person named lies.

    kind     what is looked for
    name     a folder's path, or the name of shipped data
    returns  an existing folder
    Raises   InputError naming the places looked in and the names that would have been found
    """
    given = Path(name)
    candidates = [given]
    if not given.is_absolute() and len(given.parts) == 1:
        candidates += [folder / given for folder in shipped_folders(kind)]
    for candidate in candidates:
        if (candidate / "manifest.json").is_file():
            return candidate
    if given.exists():
        raise InputError(f"{given}: not a {NOUN[kind]}: it has no manifest.json")
    known = ", ".join(shipped_names(kind)) or "none"
    raise InputError(f"{given}: no such {NOUN[kind]}, neither a folder nor a shipped one (shipped: {known})")


def shipped_names(kind: Kind) -> tuple[str, ...]:
    """Names that `shipped_path` resolves, sorted."""
    found = {manifest.parent.name for folder in shipped_folders(kind) for manifest in folder.glob("*/manifest.json")}
    return tuple(sorted(found))
