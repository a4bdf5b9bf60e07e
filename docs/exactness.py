"""Writes the table of docs/exactness.md: enumerates every policy with every kind of drafter, about 20 seconds.

`python docs/exactness.py` enumerates and rewrites the table; a test holds the page to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pages import rewritten

from specsim.report.exactness_terminal import by_policy, decimal
from specsim.study.exactness.table import KINDS, Combination, enumerate_table

PAGE = Path(__file__).resolve().parent / "exactness.md"
BEGIN, END = "<!-- every policy: written by docs/exactness.py -->\n", "<!-- end of every policy -->\n"


def table(found: Sequence[Combination]) -> str:
    """Markdown: a row for each policy and score, a column for each kind of drafter."""
    kinds = [f"{law.replace('_', ' ')}, {structure}" for law, structure in KINDS]
    rows = [f"| policy | score | {' | '.join(kinds)} |", "|---|---" + "|---" * len(kinds) + "|"]
    for policy, scores in by_policy(found):
        for row in scores:
            rows.append(f"| `{policy}` | {row[0].score or 'none'} | {' | '.join(_cell(one) for one in row)} |")
    return "\n".join(rows) + "\n"


def updated(page: str, found: Sequence[Combination]) -> str:
    """The page with its table made anew.

    Raises  ValueError when a mark is missing
    """
    return rewritten(page, BEGIN, END, table(found))


def _cell(one: Combination) -> str:
    return f"refused, {decimal(one.bias)}" if one.finding == "refused" else one.finding


def main() -> None:
    """Enumerate, then rewrite the table."""
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8"), enumerate_table()), encoding="utf-8")


if __name__ == "__main__":
    main()
