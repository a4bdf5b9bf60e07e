"""The exactness table in the terminal: policy by kind of drafter, then in words. Fits 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specsim.report.labels import lines
from specsim.study.exactness.table import KINDS, Combination

POLICY_WIDTH = 26
CELL_WIDTH = 11
STYLES = {"exact": "", "refused": "yellow", "bound": "dim", "contradiction": "bold red"}
HEADINGS = ("point mass\nparallel", "point mass\nautoregr.", "sampled\nparallel", "sampled\nautoregr.")


def render_exactness(found: Sequence[Combination], console: Console) -> None:
    """Print the table.

    found    every policy with every kind of drafter, kinds in turn
    console  where to
    """
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("policy", width=POLICY_WIDTH, no_wrap=True)
    for heading in HEADINGS:
        table.add_column(heading, width=CELL_WIDTH, no_wrap=True)
    for start in range(0, len(found), len(KINDS)):
        row = found[start : start + len(KINDS)]
        label = Text("\n".join(lines(row[0].policy, POLICY_WIDTH)))
        table.add_row(label, *(Text(cell(one), style=STYLES[one.finding]) for one in row))
    console.print(table)
    console.print()
    for sentence in sentences(found):
        console.print(Text(sentence))


def cell(one: Combination) -> str:
    """What is shown of one combination."""
    match one.finding:
        case "exact":
            return f"{one.bias:.0e}"
        case "refused":
            return f"refused {decimal(one.bias)}"
        case "bound":
            return "bound"
        case _:
            return f"FAULT {decimal(one.bias)}"


def decimal(bias: float) -> str:
    """Two digits of a bias, as `.13`."""
    return f"{bias:.2g}".removeprefix("0")


def sentences(found: Sequence[Combination]) -> list[str]:
    """What the table says, in words."""
    exact = [one for one in found if one.finding == "exact"]
    refused = [one for one in found if one.finding == "refused"]
    said = []
    if exact:
        worst = max(one.bias for one in exact)
        said.append(
            f"{len(exact)} combinations are allowed; none is further than {worst:.0e} from the target's law (L1)."
        )
    if refused:
        least, most = min(one.bias for one in refused), max(one.bias for one in refused)
        forced = f"forced, each is biased, by {decimal(least)} to {decimal(most)}"
        said.append(f"{len(refused)} combinations are refused; {forced}.")
    for policy in dict.fromkeys(one.policy for one in found if one.finding == "bound"):
        said.append(f"{policy} is a bound: it emits nothing, and is refused live.")
    for one in found:
        if one.finding == "contradiction":
            said.append(f"CONTRADICTION: {one.policy}, drafts {one.law} and {one.structure}: {one.says}.")
    return said
