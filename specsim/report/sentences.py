"""Findings and notes in the place they belong to: a sentence that begins with a cost table's name stands with it."""

from __future__ import annotations

import re

from specsim.report.grid import Grid

PRICE = re.compile(r"(.*\b(?:drafting by|switching to) )(\S+?)( is derived from .*|\.?)", re.IGNORECASE)
"""A note on one drafter's price: in front of its name, its name, and behind it."""


def gathered(notes: list[str]) -> list[str]:
    """Notes that differ in a drafter's name alone become one that names all, at the place of the first."""
    names: dict[tuple[str, ...], list[str]] = {}
    for note in notes:
        found = PRICE.fullmatch(note)
        key = (note,) if found is None else (found[1], found[3])
        names.setdefault(key, []).append("" if found is None else found[2])
    return [key[0] + _listed(each) + key[1] if len(key) == 2 else key[0] for key, each in names.items()]


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def by_table(sentences: list[str], tables: tuple[str, ...], labels: tuple[str, ...]) -> dict[str, list[str]]:
    """The sentences of each table, without the name they began with; those of no table under the empty name.

    sentences   such as `h20-qwen3-8b: dcut@exit28 is the fastest at batch 8.`
    tables      names that a sentence may begin with
    labels      policies, which keep their first letter where a sentence begins with one
    """
    groups: dict[str, list[str]] = {table: [] for table in ("", *tables)}
    for sentence in sentences:
        table = max((name for name in tables if sentence.startswith(f"{name}: ")), key=len, default="")
        groups[table].append(_begun(sentence.removeprefix(f"{table}: "), labels) if table else sentence)
    return groups


def _begun(sentence: str, labels: tuple[str, ...]) -> str:
    """The rest of a sentence with a capital letter, unless it begins with a label."""
    return sentence if sentence.startswith(labels) else sentence[:1].upper() + sentence[1:]


def footnotes(grid: Grid, notes: list[str]) -> list[tuple[str, list[str]]]:
    """What a reader must know of a table's numbers, each with the policies to name (none: several).

    grid    the table's cells, whose notes `notes` may already hold
    notes   the study's own notes on this table
    """
    concerned: dict[str, dict[str, None]] = {}
    for row in grid.rows:
        for entry in row.entries:
            for note in entry.cell.notes if entry else ():
                concerned.setdefault(note.rstrip("."), {})[row.policy] = None
    told = {note.rstrip(".").casefold() for note in notes}
    further = [(note, list(policies)) for note, policies in concerned.items() if note.casefold() not in told]
    return [(note, []) for note in gathered(notes)] + [
        (f"{note}.", policies if len(policies) == 1 else []) for note, policies in further
    ]
