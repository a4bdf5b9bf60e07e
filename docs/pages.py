"""Pages that scripts write parts of: what stands between two marks is theirs, everything else the page's own."""

from __future__ import annotations


def rewritten(page: str, begin: str, end: str, text: str) -> str:
    """The page with other text between two marks, set off from them by empty lines.

    page    text of the page, holding both marks
    begin   the mark before, a whole line
    end     the mark behind, likewise
    text    whole lines
    Raises  ValueError when a mark is missing, or the one behind stands before the other
    """
    before, opened, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not opened or not closed:
        raise ValueError(f"the page must hold {begin.strip()!r} and {end.strip()!r}, each on a line of its own")
    return f"{before}{begin}\n{text}\n{end}{after}"
