"""Finds recorded data by path or by the name it ships under in `traces/`, and trained drafters in `models/`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from specsim.errors import InputError

Kind: TypeAlias = Literal["trace", "cost", "model"]

FOLDER: dict[Kind, str] = {"trace": "traces", "cost": "traces/costs", "model": "models"}
NOUN: dict[Kind, str] = {"trace": "trace", "cost": "cost table", "model": "drafter"}
MARK: dict[Kind, str] = {"trace": "manifest.json", "cost": "manifest.json", "model": "config.json"}
"""The file by which a folder is known."""


def shipped_folders(kind: Kind) -> tuple[Path, ...]:
    """Folders that hold what ships: of the working directory, of the clone, of the installed package."""
    package = Path(__file__).resolve().parent
    return tuple(root / FOLDER[kind] for root in (Path(), package.parent, package))


def shipped_path(kind: Kind, name: str | Path) -> Path:
    """Where the data, or the drafter, that a person named lies.

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
        if (candidate / MARK[kind]).is_file():
            return candidate
    if given.exists():
        if kind == "trace" and (given / "parts" / MARK[kind]).is_file():
            rest = f"specsim parity {given} --recover" if (given / "run.json").exists() else "specsim record --resume"
            raise InputError(f"{given}: a recording that was cut short; `{rest}` makes a trace of it")
        raise InputError(f"{given}: not a {NOUN[kind]}: it has no {MARK[kind]}")
    known = ", ".join(shipped_names(kind)) or "none"
    raise InputError(f"{given}: no such {NOUN[kind]}, neither a folder nor a shipped one (shipped: {known})")


def shipped_names(kind: Kind) -> tuple[str, ...]:
    """Names that `shipped_path` resolves, sorted."""
    found = {mark.parent.name for folder in shipped_folders(kind) for mark in folder.glob(f"*/{MARK[kind]}")}
    return tuple(sorted(found))
