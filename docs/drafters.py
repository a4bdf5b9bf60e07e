"""Writes docs/drafters.md, what the drafters are worth by domain, from the results.json that training wrote.

`python docs/drafters.py RESULTS.json` makes the page's tables anew, and the page where there is none. The text is here
until there are numbers, and is the page's own from then on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent / "drafters.md"
BEGIN, END = "<!-- {}: written by docs/drafters.py -->\n", "<!-- end of {} -->\n"

DEPTHS = ("7", "15")
POSITIONS = (1, 2, 3, 4, 6, 8, 11, 15)

TEXT = """# The drafters for SmolLM2

Five drafters for SmolLM2-135M-Instruct ship in `models/`: a general EAGLE head, a general block drafter, and a smaller
head for each domain. [Training drafters](training.md) says how they were made; every folder has a card. Use one by its
name: `--drafters eagle-general,ngram`.

{drafters}
## Acceptance

Tokens emitted by one verification, the bonus token included, along the target's own greedy outputs on prompts that no
drafter was trained on. With 7 drafts a block, with 15 in brackets. The largest of each domain at 7 is bold.

{acceptance}
Small models go in circles, and then everything is easy to guess. The same without outputs that loop (more than 40 % of
their 4-grams repeat):

{loop_free}
Outputs that were held out, and the part of them that loops:

{held_out}
## How deep drafts survive

Part of the blocks whose drafts up to a position are all accepted, over all domains.

{survival}
## What confidence is worth

A draft's probability as a forecast of its acceptance, given that all drafts before it were accepted, over all domains.
Expected calibration error (0 is right on average), then the chance that an accepted draft is more confident than a
rejected one (0.5 is a coin, 1 is perfect), at draft 1, 4 and 8.

{confidence}
"""


def drafters(results: dict[str, Any]) -> str:
    """Size and training of each drafter."""
    rows = [
        [f"`{name}`", f"{own['parameters']:,}", f"{own['steps']:,}", f"{own['seconds']:.0f}", own["hardware"]]
        for name, own in results.items()
    ]
    return _table(["drafter", "parameters", "steps", "seconds", "trained on"], rows)


def acceptance(results: dict[str, Any]) -> str:
    """Tokens a verification by drafter and domain."""
    return _lengths(results, "acceptance_length")


def loop_free(results: dict[str, Any]) -> str:
    """The same over outputs that do not loop."""
    return _lengths(results, "acceptance_length_loop_free")


def held_out(results: dict[str, Any]) -> str:
    """Outputs and looping by domain."""
    own = next(iter(results.values()))["evaluation"]
    rows = [[domain, f"{own[domain]['outputs']:,}", _cell(own[domain]["looping"])] for domain in _domains(results)]
    return _table(["domain", "outputs", "looping"], rows)


def survival(results: dict[str, Any]) -> str:
    """Survival at some positions."""
    rows = []
    for name, own in results.items():
        alive = own["evaluation"]["all"]["survival"]
        rows.append([f"`{name}`", *(_cell(alive[k - 1] if k <= len(alive) else None) for k in POSITIONS)])
    return _table(["drafter", *map(str, POSITIONS)], rows)


def confidence(results: dict[str, Any]) -> str:
    """Calibration error and rank quality at some drafts."""
    numbers = list(dict.fromkeys(k for own in results.values() for k in own["evaluation"]["all"]["confidence"]))
    rows = []
    for name, own in results.items():
        known = own["evaluation"]["all"]["confidence"]
        cells = [_cell(known.get(number, {}).get(key), 3) for key in ("ece", "auc") for number in numbers]
        rows.append([f"`{name}`", *cells])
    heads = [f"{what} at {number}" for what in ("error", "rank") for number in numbers]
    return _table(["drafter", *heads], rows)


TABLES = {
    "drafters": drafters,
    "acceptance": acceptance,
    "loop_free": loop_free,
    "held_out": held_out,
    "survival": survival,
    "confidence": confidence,
}


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
        begin, end = BEGIN.format(name), END.format(name)
        if begin not in page or end not in page:
            raise ValueError(f"the page must hold {begin.strip()!r} and {end.strip()!r}, each on a line of its own")
        before, rest = page.split(begin, 1)
        page = f"{before}{begin}\n{table(results)}\n{end}{rest.split(end, 1)[1]}"
    return page


def _lengths(results: dict[str, Any], key: str) -> str:
    domains = _domains(results)
    figures = {
        name: {domain: own["evaluation"].get(domain, {}).get(key, {}) for domain in domains}
        for name, own in results.items()
    }
    best = {
        domain: max((own[domain].get(DEPTHS[0]) or 0.0 for own in figures.values()), default=0.0) for domain in domains
    }
    rows = []
    for name, own in figures.items():
        cells = [f"`{name}`"]
        for domain in domains:
            short, deep = (own[domain].get(depth) for depth in DEPTHS)
            text = f"**{_cell(short)}**" if short and short == best[domain] else _cell(short)
            cells.append(f"{text} ({_cell(deep)})")
        rows.append(cells)
    return _table(["drafter", *domains], rows)


def _domains(results: dict[str, Any]) -> list[str]:
    """Domains as evaluated, all of them together last."""
    names = list(dict.fromkeys(name for own in results.values() for name in own["evaluation"]))
    return [*(name for name in names if name != "all"), "all"]


def _cell(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |\n" for cells in (heads, *rows)]
    return "".join([lines[0], f"|{'---|' * len(heads)}\n", *lines[1:]])


def main() -> None:
    """Read, then write the page."""
    if len(sys.argv) != 2:
        sys.exit("give the results.json that training wrote: python docs/drafters.py RESULTS.json")
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else new_page()
    try:
        PAGE.write_text(updated(page, read(Path(sys.argv[1]))), encoding="utf-8")
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
