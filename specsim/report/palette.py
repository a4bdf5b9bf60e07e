"""One colour, dash and symbol a policy, the same in every chart, in light and in dark.

Hues are told apart by colour-blind readers; beyond the eighth the dash changes, and symbols differ throughout,
so that nothing rests on colour alone.
Source: Okabe and Ito, Color universal design, 2008, darkened to a contrast of 3 on white.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specsim.report.grid import is_baseline, policies_of
from specsim.study.result import StudyResult

HUES: tuple[tuple[str, str], ...] = (
    ("#0072b2", "#5ab4f0"),
    ("#d55e00", "#ff8f4d"),
    ("#00875f", "#3fd3a5"),
    ("#b0479a", "#e58bd3"),
    ("#8a6d00", "#d9b84a"),
    ("#4a3fb0", "#9d93ff"),
    ("#1f8ba3", "#68d5ea"),
    ("#b8405e", "#f58ca3"),
)
"""Each hue on a light and on a dark ground."""

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "x", "star")
DASHES = ("solid", "dash", "dashdot", "longdash")

BASELINE = "baseline"
BOUND = "bound"
PLAIN = "plain"


@dataclass(frozen=True)
class Style:
    """How one policy or drafter is drawn.

    token   name of the CSS colour, without its dashes: `hue-0`
    dash    Plotly's name of the line's dash
    symbol  Plotly's name of the marker
    """

    token: str
    dash: str = "solid"
    symbol: str = "circle"

    @property
    def colour(self) -> str:
        """The colour, resolved by the page for light and dark."""
        return f"var(--{self.token})"

    @property
    def band(self) -> str:
        """The same colour, nearly transparent, for intervals."""
        return f"var(--{self.token}-band)"


def policy_styles(result: StudyResult) -> dict[str, Style]:
    """A style for each policy: grey for the two references, for the rest the first that none beside it has.

    Policies that never meet on a cost table may look alike: they are never drawn together.
    """
    clairvoyant = {cell.policy for cell in result.cells if cell.clairvoyant}
    tables: dict[str, set[str]] = {}
    for cell in result.cells:
        tables.setdefault(cell.policy, set()).add(cell.table)
    styles: dict[str, Style] = {}
    indices: dict[str, int] = {}
    for policy in policies_of(result):
        if is_baseline(policy):
            styles[policy] = Style(BASELINE, "dash", "circle-open")
        elif policy in clairvoyant:
            styles[policy] = Style(BOUND, "dot", "diamond-open")
        else:
            taken = {index for other, index in indices.items() if tables[other] & tables[policy]}
            indices[policy] = next(index for index in range(len(taken) + 1) if index not in taken)
            styles[policy] = _style(indices[policy])
    return styles


def drafter_styles(names: list[str]) -> dict[str, Style]:
    """A style for each drafter, from the other end of the hues, so that none looks like the first policy."""
    styles = {name: _style(len(HUES) - 1 - index % len(HUES)) for index, name in enumerate(names)}
    return styles | {"none": Style(PLAIN)}


def styles_in_order(names: Iterable[str]) -> dict[str, Style]:
    """A style for each of some policies, hues in order."""
    return {name: _style(index) for index, name in enumerate(names)}


def _style(index: int) -> Style:
    hue = index % len(HUES)
    return Style(f"hue-{hue}", DASHES[index // len(HUES) % len(DASHES)], SYMBOLS[index % len(SYMBOLS)])
