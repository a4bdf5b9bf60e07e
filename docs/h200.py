"""Writes the tables of docs/h200.md from benchmarks/h200_*.json.

`python docs/h200.py` rewrites the tables; `python docs/h200.py FOLDER` takes the JSON files of another folder, as
`benchmarks/h200_grid.py --out FOLDER` left them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent / "h200.md"
MEASURED = Path(__file__).resolve().parents[1] / "benchmarks"
BEGIN, END = "<!-- {}: written by docs/h200.py -->\n", "<!-- end of {} -->\n"

NAMES = ("h200_grid", "h200_overhead", "h200_profile")


def summary(found: dict[str, Any]) -> str:
    """How far predictions are off, over all cells of the grid."""
    grid = found["h200_grid"]
    same = min(cell["same_steps"] for cell in grid["cells"])
    rows = [
        "| | |",
        "|---|---|",
        f"| machine | {grid['hardware']} |",
        f"| acceptance | {grid['label']} |",
        f"| cells | {len(grid['cells'])} |",
        f"| steps whose decisions were the simulator's, least of all cells | {same:.1%} |",
        f"| predicted against measured output tokens a second, mean error | {grid['mean_error']:.1%} |",
        f"| largest error | {grid['max_error']:.1%} |",
    ]
    return "\n".join(rows) + "\n"


def throughput(found: dict[str, Any]) -> str:
    """Output tokens a second by policy and batch: measured, and by how much the prediction is off."""
    return _by_batch(found, lambda cell: f"{cell['measured']:,.0f} ({cell['error']:+.1%})")


def speedup(found: dict[str, Any]) -> str:
    """Measured throughput over that of plain decoding."""
    faster = found["h200_grid"]["speedups"]
    return _by_batch(found, lambda cell: f"{faster[cell['policy']][str(cell['batch'])]:.2f}")


def steps(found: dict[str, Any]) -> str:
    """Milliseconds of a step: measured, predicted."""
    return _by_batch(found, lambda cell: f"{cell['step_ms']:.2f}, {cell['predicted_step_ms']:.2f}")


def overhead(found: dict[str, Any]) -> str:
    """Milliseconds of a step, and what of it the device does not work."""
    rows = ["| policy | requests | step, ms | working, ms | idle | waiting for the host |", "|---|---|---|---|---|---|"]
    for cell in found["h200_overhead"]["cells"]:
        told = "between_kernels_ms" in cell  # older measurements did not tell the two apart
        idle, waiting = (cell["idle_share"], f"{cell['waiting_share']:.1%}") if told else (cell["waiting_share"], "–")
        rows.append(
            f"| `{cell['policy']}` | {cell['batch']} | {cell['step_ms']:.2f} | {cell['busy_ms']:.2f} | {idle:.1%}"
            f" | {waiting} |"
        )
    return "\n".join(rows) + "\n"


def passes(found: dict[str, Any]) -> str:
    """Milliseconds of a plain pass, of the deepest one and of the host's share, by model and batch."""
    rows = ["| model | requests | plain pass, ms | deepest pass, ms | host, ms |", "|---|---|---|---|---|"]
    for model, table in found["h200_profile"]["tables"].items():
        for batch, step in table["steps"].items():
            rows.append(
                f"| {model} | {batch} | {step['plain_ms']:.2f} | {step['deepest_ms']:.2f} | {step['host_ms']:.2f} |"
            )
    return "\n".join(rows) + "\n"


TABLES = {
    "summary": summary,
    "throughput": throughput,
    "speedup": speedup,
    "steps": steps,
    "overhead": overhead,
    "passes": passes,
}


def updated(page: str, found: dict[str, Any]) -> str:
    """The page with its tables made anew.

    found   by name of the script that measured, what it wrote

    Raises  ValueError when a mark is missing
    """
    for name, table in TABLES.items():
        begin, end = BEGIN.format(name), END.format(name)
        if begin not in page or end not in page:
            raise ValueError(f"the page must hold {begin.strip()!r} and {end.strip()!r}, each on a line of its own")
        before, rest = page.split(begin, 1)
        page = f"{before}{begin}\n{table(found)}\n{end}{rest.split(end, 1)[1]}"
    return page


def read(folder: Path) -> dict[str, Any]:
    """What the scripts wrote to a folder, by script; what is not there is taken from `benchmarks`."""
    found = {}
    for name in NAMES:
        path = folder / f"{name}.json"
        found[name] = json.loads((path if path.exists() else MEASURED / path.name).read_text(encoding="utf-8"))
        if found[name]["tiny"]:
            raise ValueError(f"{path}: measured with --tiny, so its numbers mean nothing")
    return found


def _by_batch(found: dict[str, Any], text: Any) -> str:
    cells = found["h200_grid"]["cells"]
    batches = sorted({cell["batch"] for cell in cells})
    rows = [f"| policy | {' | '.join(map(str, batches))} |", f"|---{'|---' * len(batches)}|"]
    for policy in dict.fromkeys(cell["policy"] for cell in cells):
        own = {cell["batch"]: text(cell) for cell in cells if cell["policy"] == policy}
        rows.append(f"| `{policy}` | {' | '.join(own[batch] for batch in batches)} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Read, then rewrite the tables."""
    found = read(Path(sys.argv[1]) if len(sys.argv) > 1 else MEASURED)
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
