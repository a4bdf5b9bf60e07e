"""Writes the tables of docs/regret.md on the stream of domains, from what benchmarks/bandits_by_domain.py measured.

`python docs/bandits_by_domain.py` rewrites them from benchmarks/bandits_by_domain.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pages import rewritten

PAGE = Path(__file__).resolve().parent / "regret.md"
RESULTS = PAGE.parents[1] / "benchmarks" / "bandits_by_domain.json"
BEGIN, END = "<!-- {}: written by docs/bandits_by_domain.py -->\n", "<!-- end of {} -->\n"


def loads(results: dict[str, Any]) -> str:
    """What there is to gain at each load, and how many policies gain or lose."""
    heads = [
        "costs",
        "drafters",
        "budget",
        "requests",
        "best fixed",
        "plain",
        "oracle",
        "best policy",
        "above",
        "below",
    ]
    rows = []
    for cell in results["cells"]:
        played = {name: row for name, row in cell["policies"].items() if row["kind"] != "fixed"}
        best = max(played, key=lambda name: played[name]["over_best_fixed"])
        above = sum(row["interval"][0] > 1 for row in played.values())
        fixed = cell["policies"][cell["best_fixed"]]["tokens_per_second"]
        rows.append(
            [
                *(f"`{cell['cost']}`", _drafters(cell), _budget(cell), str(cell["batch"])),
                f"`{cell['best_fixed']}`, {fixed:.1f}",
                _cell(cell["policies"]["autoregressive"]["over_best_fixed"]),
                _cell(cell["oracle_over_best_fixed"]),
                f"`{best}` {_judged(played[best])}",
                f"{above} of {len(played)}",
                f"{len(cell['below_the_best_fixed'])} of {len(played)}",
            ]
        )
    return _table(heads, rows)


def policies(results: dict[str, Any]) -> str:
    """Every policy with its own defaults, and those whose options were chosen, for each cost table and budget."""
    found = []
    for cost, budget in dict.fromkeys((cell["cost"], cell["budget"]) for cell in results["cells"]):
        cells = [cell for cell in results["cells"] if (cell["cost"], cell["budget"]) == (cost, budget)]
        found.append(f"At the costs of `{cost}`, {_budget(cells[0])}:\n\n{_policies(cells)}")
    return "\n".join(found)


def _policies(cells: list[dict[str, Any]]) -> str:
    named = {name for cell in cells for name, row in cell["policies"].items() if row["kind"] == "policy"}
    heads = ["policy", *(f"{_drafters(cell)}, {cell['batch']}" for cell in cells)]
    order = sorted(named, key=lambda name: -sum(cell["policies"][name]["over_best_fixed"] for cell in cells))
    rows = [[f"`{name}`", *(_judged(cell["policies"][name]) for cell in cells)] for name in order]
    families = dict.fromkeys(name.split(":")[0] for cell in cells for name in _tuned(cell))
    for family in families:
        found = [next(row for name, row in _tuned(cell).items() if name.split(":")[0] == family) for cell in cells]
        rows.append([f"`{family}`, tuned", *(_judged(row) for row in found)])
    return _table(heads, rows)


TABLES = {"loads": loads, "policies": policies}


def updated(page: str, results: dict[str, Any]) -> str:
    """The page with its tables made anew.

    Raises  ValueError when a mark is missing
    """
    for name, table in TABLES.items():
        page = rewritten(page, BEGIN.format(name), END.format(name), table(results))
    return page


def _tuned(cell: dict[str, Any]) -> dict[str, Any]:
    """Policies whose options were chosen, some of which are their own defaults."""
    return {name: cell["policies"][name] for name in cell["tuned"]}


def _drafters(cell: dict[str, Any]) -> str:
    return "all six" if len(cell["arms"]) == 6 else "specialists"


def _budget(cell: dict[str, Any]) -> str:
    """D-cut, and how deep it drafts."""
    depth = cell["budget"].partition("depth=")[2].partition(",")[0]
    return f"D-cut, {'depth by goodput' if depth == 'goodput' else f'{depth} deep'}" if depth else "D-cut"


def _judged(row: dict[str, Any]) -> str:
    """A ratio with its interval; bold where the interval is above one, in italics where it is below."""
    low, high = row["interval"]
    mark = "**" if low > 1 else "*" if high < 1 else ""
    return f"{mark}{row['over_best_fixed']:.3f}{mark} ({low:.3f}–{high:.3f})"


def _cell(value: float) -> str:
    return f"{value:.3f}"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |\n" for cells in (heads, *rows)]
    return "".join([lines[0], f"|{'---|' * len(heads)}\n", *lines[1:]])


def main() -> None:
    """Read, then rewrite the tables."""
    try:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        PAGE.write_text(updated(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    except (OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
