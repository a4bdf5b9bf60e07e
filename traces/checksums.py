"""Keeps the table of checksums in traces/README.md equal to the files that ship.

`python traces/checksums.py` fails when the table is out of date; with `--write` it rewrites the table.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER / "README.md"
BEGIN = "<!-- checksums: written by traces/checksums.py -->\n"
END = "<!-- end of checksums -->\n"
DATA = ("*.parquet", "*.jsonl", "manifest.json")


def data_files(folder: Path) -> list[Path]:
    """Every data file below a folder, sorted; parts of a recording in progress are none."""
    found = (path for pattern in DATA for path in folder.rglob(pattern))
    return sorted(path for path in found if "parts" not in path.parts)


def table(folder: Path) -> str:
    """The table as Markdown, markers included."""
    lines = ["| file | bytes | sha256 |", "| --- | ---: | --- |"]
    for path in data_files(folder):
        data = path.read_bytes()
        lines.append(f"| `{path.relative_to(folder)}` | {len(data)} | `{hashlib.sha256(data).hexdigest()}` |")
    return BEGIN + "\n" + "\n".join(lines) + "\n\n" + END


def updated(page: str, folder: Path) -> str:
    """The page with its table made anew.

    Raises      ValueError when the page lacks the markers
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN.strip()!r} and {END.strip()!r} in the page")
    return before + table(folder) + after


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    wanted = updated(page, FOLDER)
    if page == wanted:
        return 0
    if "--write" in sys.argv[1:]:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    print(f"{PAGE.name} is out of date: run `python traces/checksums.py --write`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
