"""Put results of several h200 runs together: batches measured apart, on several GPUs at once, or one after the other.

Every folder is searched, those inside it too. Files of the same name are parts of one result: their cells are joined,
and their settings must agree. With --again, a cell that a later folder measured again takes the place of the earlier
one. What stands in the folder to write already is overwritten.

    python benchmarks/h200_merge.py FOLDER... [--again] [--out benchmarks]
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


def merged(file: str, parts: Sequence[dict[str, Any]], again: bool = False) -> dict[str, Any]:
    """One result of several.

    file    what they are called, for messages
    again   whether a later part's cell takes the place of an earlier one

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
    if again and cells:
        cells = found["cells"] = list({_name(cell): cell for cell in cells}.values())
        known = [cell["parity"] for cell in cells if "parity" in cell]
        if known:
            counts = (
                len(cells),
                sum(one["complete"] for one in known),
                sum(one["difference"] is not None for one in known),
            )
            found["parity"] = dict(zip(COUNTED, counts, strict=True))
    named = [_name(cell) for cell in cells]
    if twice := [name for place, name in enumerate(named) if name in named[:place]]:
        raise ValueError(
            f"{file}: measured in two parts: {', '.join(f'{name[0]} at batch {name[1]}' for name in twice)}"
        )
    return found | (overall(cells) if cells and "predicted" in cells[0] else {})


def _name(cell: dict[str, Any]) -> tuple[str, int, tuple[str, ...]]:
    """What no two cells share."""
    return cell["policy"], cell["batch"], tuple(cell.get("drafters", ()))


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
    parser.add_argument("--again", action="store_true", help="later folders measured again what is in earlier ones")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write")
    arguments = parser.parse_args()
    results = {}
    try:
        for name, parts in parts_in(arguments.folders).items():
            results[name] = merged(name, parts, arguments.again)
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
