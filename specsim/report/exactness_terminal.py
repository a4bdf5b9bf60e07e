"""The exactness table in the terminal: policy by kind of drafter, then in words. Fits 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specsim.report.labels import lines
from specsim.study.exactness.table import KINDS, Combination

POLICY_WIDTH, SCORE_WIDTH, CELL_WIDTH = 17, 12, 10
STYLES = {"exact": "", "refused": "yellow", "idle": "yellow", "bound": "dim", "contradiction": "bold red"}
HEADINGS = ("point mass\nparallel", "point mass\nautoregr.", "sampled\nparallel", "sampled\nautoregr.")


def render_exactness(found: Sequence[Combination], console: Console) -> None:
    """Print the table.

    found    every policy with every kind of drafter, kinds in turn
    console  where to
    """
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False)
    table.add_column("policy", width=POLICY_WIDTH, no_wrap=True)
    table.add_column("score", width=SCORE_WIDTH, no_wrap=True)
    for heading in HEADINGS:
        table.add_column(heading, width=CELL_WIDTH, no_wrap=True)
    for policy, rows in by_policy(found):
        label = lines(policy, POLICY_WIDTH)
        for height, row in enumerate(rows):
            # The label runs down beside the scores; what is left of it stays with the last of them.
            part = label[height : height + 1] if height < len(rows) - 1 else label[height:]
            cells = (Text(cell(one), style=STYLES[one.finding]) for one in row)
            table.add_row(Text("\n".join(part)), Text(row[0].score or "none", style="dim"), *cells)
    console.print(table)
    console.print()
    for sentence in sentences(found):
        console.print(Text(sentence))


def by_policy(found: Sequence[Combination]) -> list[tuple[str, list[Sequence[Combination]]]]:
    """Each policy as written but for its score, and a row of kinds for each score."""
    rows = [found[start : start + len(KINDS)] for start in range(0, len(found), len(KINDS))]
    grouped: dict[str, list[Sequence[Combination]]] = {}
    for row in rows:
        grouped.setdefault(row[0].label, []).append(row)
    return list(grouped.items())


def cell(one: Combination) -> str:
    """What is shown of one combination."""
    match one.finding:
        case "exact":
            return f"{one.bias:.0e}"
        case "refused":
            return f"lossy {decimal(one.bias)}"
        case "idle" | "bound":
            return one.finding
        case _:
            return f"FAULT {decimal(one.bias)}"


def decimal(bias: float) -> str:
    """One digit of a bias, as `.1`."""
    return f"{bias:.1g}".removeprefix("0")


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
        said.append(f"{len(refused)} combinations are refused without --allow-lossy; {forced}.")
    idle = sum(one.finding == "idle" for one in found)
    if idle:
        said.append(
            f"{idle} combinations are refused without --allow-lossy for the score they read, though no score ever"
            " decided here how much was verified: there was no bias to show."
        )
    for policy in dict.fromkeys(one.policy for one in found if one.finding == "bound"):
        said.append(f"{policy} is a bound: it emits nothing, and is refused live.")
    for one in found:
        if one.finding == "contradiction":
            said.append(f"CONTRADICTION: {one.policy}, drafts {one.law} and {one.structure}: {one.says}.")
    return said
