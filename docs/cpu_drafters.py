"""Writes the table of docs/live.md on trained drafters on a CPU, from what benchmarks/cpu_drafters.py measured.

`python docs/cpu_drafters.py` rewrites it from benchmarks/cpu_drafters.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pages import rewritten

PAGE = Path(__file__).resolve().parent / "live.md"
MEASURED = PAGE.parents[1] / "benchmarks" / "cpu_drafters.json"
BEGIN, END = "<!-- cpu_drafters: written by docs/cpu_drafters.py -->\n", "<!-- end of cpu_drafters -->\n"


def table(measured: dict[str, Any]) -> str:
    """A row for each policy and drafter.

    Raises  ValueError for a run that was only tried out, or whose steps the simulator took otherwise
    """
    if measured["tiny"]:
        raise ValueError("the numbers of --tiny mean nothing")
    lines = [
        "| policy | drafter | tokens/s | x plain, live | rounds | x plain, simulated | tokens a request and step |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for cell in measured["cells"]:
        if cell["differences"]:
            raise ValueError(f"{cell['policy']}: the simulator decided otherwise: {cell['differences'][0]}")
        rounds = ", ".join(f"{ratio:.2f}" for ratio in cell["speedup_rounds"])
        numbers = (
            f"{cell['tokens_per_second']:.1f} | {cell['speedup']:.2f} | {rounds} | {cell['predicted_speedup']:.2f}"
        )
        length = f"{cell['run']['mean_acceptance_length']:.2f}"
        lines.append(f"| `{cell['policy']}` | {cell['drafter'] or 'none'} | {numbers} | {length} |")
    return "\n".join(lines) + "\n"


def updated(page: str, measured: dict[str, Any]) -> str:
    """The page with a new table.

    Raises  ValueError where the page has no place for it
    """
    return rewritten(page, BEGIN, END, table(measured))


def main() -> None:
    """Read, then write the page."""
    try:
        PAGE.write_text(
            updated(PAGE.read_text(encoding="utf-8"), json.loads(MEASURED.read_text(encoding="utf-8"))),
            encoding="utf-8",
        )
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
