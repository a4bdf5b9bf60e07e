"""Prompt sets: JSON lines of `id`, `domain` and `prompt`."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from specsim.errors import InputError
from specsim.shipped import shipped_folders

KEYS = ("id", "domain", "prompt")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    id        number of the request it becomes, unique over all files
    domain    kind of prompt, such as chat or code
    text      what the user says
    """

    id: int
    domain: str
    text: str


@dataclass(frozen=True, slots=True)
class PromptFile:
    """A file of prompts.

    name      the file's stem
    sha256    of its bytes
    prompts   at least one
    """

    name: str
    sha256: str
    prompts: tuple[Prompt, ...]


def shipped_prompts() -> Path:
    """The folder of the prompts that specsim ships.

    Raises      InputError when neither the clone nor the installed package has it
    """
    for folder in shipped_folders("trace"):
        if (folder / "prompts").is_dir():
            return folder / "prompts"
    raise InputError("the shipped prompts (traces/prompts) are not here; give a JSONL file or folder with --prompts")


def read_prompts(paths: Sequence[Path]) -> tuple[PromptFile, ...]:
    """Read prompt files.

    paths       JSONL files, or folders whose *.jsonl files are read in name order
    returns     the files, in order

    Raises      InputError naming file, line, key and the allowed values
    """
    files = tuple(_read_file(file) for path in paths for file in _jsonl_files(path))
    seen: dict[int, str] = {}
    for file in files:
        for prompt in file.prompts:
            if prompt.id in seen:
                raise InputError(
                    f"{file.name}: id {prompt.id} is taken already (in {seen[prompt.id]}); ids must differ"
                )
            seen[prompt.id] = file.name
    return files


def limited(files: Sequence[PromptFile], limit: int | None) -> tuple[PromptFile, ...]:
    """The files cut to their first prompts, one more of each in turn until there are enough.

    limit    prompts in all (None: every one)
    returns  the files that are left with a prompt, in order
    """
    if limit is None:
        return tuple(files)
    longest = max(len(file.prompts) for file in files)
    places = (place for row in range(longest) for place, file in enumerate(files) if row < len(file.prompts))
    kept = Counter(islice(places, min(limit, sum(len(file.prompts) for file in files))))
    return tuple(replace(file, prompts=file.prompts[: kept[place]]) for place, file in enumerate(files) if kept[place])


def in_turn(files: Sequence[PromptFile], size: int | None) -> tuple[Prompt, ...]:
    """All prompts in the order in which they are asked.

    files    at least one
    size     take so many of each file in turn until all are taken, so that the domain changes inside the stream;
             they are numbered anew from 0, since a trace keeps requests by number (None: file by file, as numbered)
    """
    if size is None:
        return tuple(prompt for file in files for prompt in file.prompts)
    longest = max(len(file.prompts) for file in files)
    starts = range(0, longest, size)
    stream = (prompt for start in starts for file in files for prompt in file.prompts[start : start + size])
    return tuple(replace(prompt, id=number) for number, prompt in enumerate(stream))


def _jsonl_files(path: Path) -> list[Path]:
    if not path.exists():
        raise InputError(f"{path}: no such prompt file or folder")
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path}: holds no *.jsonl file")
    return files


def _read_file(path: Path) -> PromptFile:
    try:
        data = path.read_bytes()
        lines = data.decode("utf-8").split("\n")  # not splitlines: a prompt may hold other line separators
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as UTF-8 text ({error})") from None
    prompts = tuple(_parse(line, f"{path}, line {row}") for row, line in enumerate(lines, start=1) if line.strip())
    if not prompts:
        raise InputError(f"{path}: holds no prompt")
    return PromptFile(path.stem, hashlib.sha256(data).hexdigest(), prompts)


def _parse(line: str, where: str) -> Prompt:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:  # no JSON, nested too deep, or an integer of too many digits
        raise InputError(f"{where}: not JSON ({error})") from None
    if not isinstance(record, dict) or set(record) != set(KEYS):
        found = ", ".join(record) if isinstance(record, dict) else type(record).__name__
        raise InputError(f"{where}: has {found or 'nothing'}; must be an object with exactly {', '.join(KEYS)}")
    _check(record, where)
    return Prompt(record["id"], record["domain"], record["prompt"])


def _check(record: dict[str, Any], where: str) -> None:
    number = record["id"]
    if type(number) is not int or not 0 <= number < 2**63:
        raise InputError(f"{where}: id {number!r}; must be an integer from 0 to 2^63 - 1")
    for key in ("domain", "prompt"):
        if not isinstance(record[key], str) or not record[key].strip():
            raise InputError(f"{where}: {key} {record[key]!r}; must be a text that is not empty")
        if any("\ud800" <= letter <= "\udfff" for letter in record[key]):  # JSON can escape what no encoding can write
            raise InputError(f"{where}: {key} holds half of a surrogate pair, which is no character")
