"""Put results of several h200 runs together: batches measured apart, on several GPUs at once, or one after the other.

Every folder is searched, those inside it too. Files of the same name are parts of one result: their cells are joined,
and their settings must agree. What stands in the folder to write already is overwritten.

    python benchmarks/h200_merge.py FOLDER... [--out benchmarks]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

JOINED = ("cells", "left_out", "captures", "peers", "waiting", "controllers")
"""Lists of what was found, one part's behind the other's."""

SETTINGS = (
    "tiny", "quick", "label", "draft_cost", "hardware", "versions", "model", "origin", "dtype", "drafters", "table",
    "prompts", "tokens", "depth",
)  # fmt: skip
"""What must be the same in every part."""

COUNTED = ("runs", "taken_again", "different")


def merged(file: str, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One result of several.

    file    what they are called, for messages

    Raises  ValueError where the settings of two parts differ, or both measured the same cell
    """
    found: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            if name not in found:
                found[name] = value
            elif name in SETTINGS and found[name] != value:
                raise ValueError(f"{file}: {name} is {found[name]!r} in one part and {value!r} in another")
            elif name in JOINED:
                found[name] = [*found[name], *value]
            elif name == "date":
                found[name] = max(found[name], value)
            elif name == "tables":
                found[name] = found[name] | value
            elif name == "parity":
                found[name] = {count: found[name][count] + value[count] for count in COUNTED}
    cells = found.get("cells", [])
    named = [(cell["policy"], cell["batch"], tuple(cell.get("drafters", ()))) for cell in cells]
    if twice := [name for place, name in enumerate(named) if name in named[:place]]:
        raise ValueError(
            f"{file}: measured in two parts: {', '.join(f'{name[0]} at batch {name[1]}' for name in twice)}"
        )
    return found | (overall(cells) if cells and "predicted" in cells[0] else {})


def overall(cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How far the predictions of a grid's cells are off, and throughputs over plain decoding's."""
    errors = [abs(cell["error"]) for cell in cells]
    plain = {cell["batch"]: cell["measured"] for cell in cells if cell["policy"] == "autoregressive"}
    speedups: dict[str, dict[str, float]] = {}
    for cell in cells:
        if cell["batch"] in plain:
            faster = round(cell["measured"] / plain[cell["batch"]], 3)
            speedups.setdefault(cell["policy"], {})[str(cell["batch"])] = faster
    return {
        "mean_error": round(sum(errors) / len(errors), 4),
        "max_error": round(max(errors), 4),
        "speedups": speedups,
    }


def parts_in(folders: Sequence[Path]) -> dict[str, list[dict[str, Any]]]:
    """What lies in some folders, by file name.

    Raises  ValueError when nothing does
    """
    files = [file for folder in folders for file in sorted(folder.rglob("h200_*.json"))]
    if not files:
        raise ValueError(f"no h200_*.json in {', '.join(map(str, folders))}")
    found: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        found.setdefault(file.name, []).append(json.loads(file.read_text(encoding="utf-8")))
    return found


def main() -> int:
    """Merge what the folders hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="folders that the scripts wrote to")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write")
    arguments = parser.parse_args()
    results = {}
    try:
        for name, parts in parts_in(arguments.folders).items():
            results[name] = merged(name, parts)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, result in results.items():
        (arguments.out / name).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(arguments.out / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
