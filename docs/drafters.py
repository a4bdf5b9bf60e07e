"""Writes docs/drafters.md, what the drafters are worth by domain, from the results.json that training wrote.

`python docs/drafters.py [RESULTS.json]` makes the page's tables anew, and the page where there is none; without a file,
from benchmarks/drafters.json. The text is here until there are numbers, and is the page's own from then on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pages import rewritten

PAGE = Path(__file__).resolve().parent / "drafters.md"
RESULTS = PAGE.parents[1] / "benchmarks" / "drafters.json"
BEGIN, END = "<!-- {}: written by docs/drafters.py -->\n", "<!-- end of {} -->\n"

DEPTHS = ("7", "15")
POSITIONS = (1, 2, 4, 8)
CALIBRATED = ("1", "4", "8")

TEXT = """# The drafters for SmolLM2

Five drafters for SmolLM2-135M-Instruct ship in `models/`: a general EAGLE head, a general block drafter, and a smaller
head for each domain. [Training drafters](training.md) says how they were made; every folder has a card. Use one by its
name: `--drafters eagle-general,ngram`.

{drafters}
## What they are worth

{by_domain}
## The outputs

{held_out}
"""


def drafters(results: dict[str, Any]) -> str:
    """Size and training of each drafter."""
    rows = []
    for name, own in results.items():
        trained = "steps" in own
        cells = (f"{own['steps']:,}", f"{own['seconds']:.1f}", own["hardware"]) if trained else ("–", "–", "–")
        rows.append([f"`{name}`", f"{own['parameters']:,}", *cells])
    return _table(["drafter", "parameters", "steps", "seconds", "trained on"], rows)


def by_domain(results: dict[str, Any]) -> str:
    """Everything measured, a row for each drafter and domain."""
    heads = ["drafter", "domain", *(f"{depth} drafts (loop-free)" for depth in DEPTHS)]
    heads += [f"alive at {', '.join(map(str, POSITIONS))}"]
    heads += [f"{what} at {', '.join(CALIBRATED)}" for what in ("ECE", "AUC")]
    best = {
        domain: max(_at(own, domain, "acceptance_length", DEPTHS[0]) or 0.0 for own in results.values())
        for domain in _domains(results)
    }
    rows = []
    for name, own in results.items():
        for place, domain in enumerate(_domains(results)):
            if domain in own["evaluation"]:
                rows.append([f"`{name}`" if not place else "", domain, *_measured(own, domain, best[domain])])
    return _table(heads, rows)


def held_out(results: dict[str, Any]) -> str:
    """Outputs and looping by domain."""
    own = next(iter(results.values()))["evaluation"]
    rows = [[domain, f"{own[domain]['outputs']:,}", _cell(own[domain]["looping"])] for domain in _domains(results)]
    return _table(["domain", "outputs", "looping"], rows)


TABLES = {"drafters": drafters, "by_domain": by_domain, "held_out": held_out}


def read(file: Path) -> dict[str, Any]:
    """Results by drafter; those that were not evaluated are left out.

    Raises  ValueError where there are none
    """
    if not file.is_file():
        raise ValueError(f"{file}: no such file; training with --eval writes results.json")
    results = json.loads(file.read_text(encoding="utf-8"))
    found = {name: own for name, own in results.items() if isinstance(own, dict) and own.get("evaluation")}
    if not found:
        raise ValueError(f"{file}: holds no drafter that was evaluated")
    return found


def new_page() -> str:
    """The page with empty tables."""
    return TEXT.format(**{name: BEGIN.format(name) + END.format(name) for name in TABLES})


def updated(page: str, results: dict[str, Any]) -> str:
    """The page with its tables made anew.

    Raises  ValueError when a mark is missing
    """
    for name, table in TABLES.items():
        page = rewritten(page, BEGIN.format(name), END.format(name), table(results))
    return page


def _measured(own: dict[str, Any], domain: str, best: float) -> list[str]:
    """A row's numbers; the length at the first depth is bold where it is the best of its domain."""
    cells = []
    for depth in DEPTHS:
        length = _at(own, domain, "acceptance_length", depth)
        bold = "**" if depth == DEPTHS[0] and length == best else ""
        free = _at(own, domain, "acceptance_length_loop_free", depth)
        cells.append(f"{bold}{_cell(length)}{bold} ({_cell(free)})")
    alive = own["evaluation"][domain]["survival"]
    cells.append(" ".join(_share(alive[k - 1] if k <= len(alive) else None) for k in POSITIONS))
    for key, digits in (("ece", 3), ("auc", 2)):
        judged = [(_at(own, domain, "confidence", number) or {}).get(key) for number in CALIBRATED]
        cells.append(" ".join(_share(value, digits) for value in judged))
    return cells


def _at(own: dict[str, Any], domain: str, key: str, place: str) -> Any:
    """A figure of a drafter, None where it has none."""
    return own["evaluation"].get(domain, {}).get(key, {}).get(place)


def _domains(results: dict[str, Any]) -> list[str]:
    """Domains as evaluated, all of them together last."""
    names = list(dict.fromkeys(name for own in results.values() for name in own["evaluation"]))
    return [*(name for name in names if name != "all"), "all"]


def _cell(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _share(value: float | None, digits: int = 2) -> str:
    """A number from 0 to 1 without the zero before its point, since three of them share a cell."""
    return _cell(value, digits).removeprefix("0")


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |\n" for cells in (heads, *rows)]
    return "".join([lines[0], f"|{'---|' * len(heads)}\n", *lines[1:]])


def main() -> None:
    """Read, then write the page."""
    if len(sys.argv) > 2:
        sys.exit("give one results.json that training wrote: python docs/drafters.py [RESULTS.json]")
    file = Path(sys.argv[1]) if len(sys.argv) == 2 else RESULTS
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else new_page()
    try:
        PAGE.write_text(updated(page, read(file)), encoding="utf-8")
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
