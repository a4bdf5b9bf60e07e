"""Policy labels in lines, broken where a reader would break them: before `@` and `~`, after `:`, `,` and spaces."""

from __future__ import annotations

import re

from markupsafe import Markup, escape


def pieces(label: str) -> list[str]:
    """The parts of a label that stay together: `dcut:`, `count=code`, `@ucb1:`, `reward=throughput`."""
    return [piece for piece in re.split(r"(?<=[:, ])|(?=[@~])", label) if piece]


def lines(label: str, width: int) -> list[str]:
    """A label in lines of at most `width` characters; a part that is longer by itself is cut, if possible after `_`."""
    filled = [""]
    for piece in pieces(label):
        if filled[-1] and len(filled[-1]) + len(piece) > width:
            filled.append("")
        filled[-1] += piece
        while len(filled[-1]) > width:
            cut = filled[-1].rfind("_", 0, width) + 1 or width
            filled[-1:] = [filled[-1][:cut], filled[-1][cut:]]
    return filled


def breakable(label: str) -> Markup:
    """A label for HTML that the browser may break between its parts, and within a part after `_` and `=`."""
    return Markup("<wbr>").join(escape(part) for piece in pieces(label) for part in re.split(r"(?<=[_=])(?=.)", piece))
