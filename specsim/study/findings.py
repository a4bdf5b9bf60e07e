"""What a study says in words: who wins where and by how much, who loses, what the bandit chose, what is left."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from specsim.study.result import Cell

UNSETTLED = "none of its drafters"
SETTLED = 0.5
"""Share of the drafting steps from which on a bandit is said to have settled on an arm."""


def findings(cells: list[Cell]) -> list[str]:
    """Sentences, table by table; intervals are 90 %, paired by seed.

    cells   in the order of tables, loads and policies
    """
    sentences = []
    for table in dict.fromkeys(cell.table for cell in cells):
        own = [cell for cell in cells if cell.table == table]
        sentences += [f"{table}: {sentence}" for sentence in _of_table(own)]
    return sentences


def _of_table(cells: list[Cell]) -> list[str]:
    places: dict[tuple[int, float], list[Cell]] = {}
    for cell in cells:
        places.setdefault((cell.batch, cell.rate), []).append(cell)
    found = [winner for place in places.values() if (winner := _winner(place)) is not None]
    unknown = [winner for winner in found if math.isnan(_speedup(winner))]
    winners = [winner for winner in found if winner not in unknown]
    slower = [cell for cell in cells if cell.slower_than_autoregressive]
    undecided = [cell for cell in cells if cell.not_distinguishable and not cell.slower_than_autoregressive]
    return [
        *_wins(winners),
        *_against_fixed(winners, places),
        *_verdict("slower than autoregressive", slower),
        *_verdict("not distinguishable from autoregressive", undecided),
        *_arms(cells),
        *_bound(winners),
        *_unknown(unknown),
    ]


def _winner(place: list[Cell]) -> Cell | None:
    """The fastest policy that can be run and keeps the output law; the first of equals."""
    eligible = [cell for cell in place if not cell.clairvoyant and cell.lossy_reason is None]
    return max(eligible, key=_speedup, default=None)


def _unknown(cells: list[Cell]) -> list[str]:
    return [f"no speedup is known at {_at(cells, None)}: no finished request has a second token."] if cells else []


def _wins(winners: list[Cell]) -> list[str]:
    sentences = []
    for policy, won in _groups(winners):
        if policy == "autoregressive":
            sentences.append(f"nothing beats autoregressive decoding at {_at(won, None)}.")
        else:
            sentences.append(f"{policy} is the fastest at {_at(won, _times)}.")
    return sentences


def _against_fixed(winners: list[Cell], places: dict[tuple[int, float], list[Cell]]) -> list[str]:
    """How far the winner is from the best fixed choice, or the best adaptive policy from a fixed winner."""
    ahead: list[Cell] = []
    undecided: list[Cell] = []
    behind: list[Cell] = []
    for winner in winners:
        others = [cell for cell in places[winner.batch, winner.rate] if not cell.fixed]
        adaptive = _winner(others) if winner.fixed else winner
        if adaptive is None or adaptive.difference_to_best_fixed is None:
            continue
        _, low, high = adaptive.difference_to_best_fixed
        if math.isnan(low):  # one seed: nothing can be said of chance
            continue
        (ahead if low > 0 else behind if high < 0 else undecided).append(adaptive)
    verdicts = {
        "is ahead of the best fixed policy at": ahead,
        "is not distinguishable from the best fixed policy at": undecided,
        "is the best adaptive policy, behind the best fixed one, at": behind,
    }
    return [
        f"{policy} {verdict} {_at(own, _difference)}."
        for verdict, cells in verdicts.items()
        for policy, own in _groups(cells)
    ]


def _verdict(verdict: str, cells: list[Cell]) -> list[str]:
    """One sentence for all policies that share a verdict; their intervals, which gave it, stand in the table."""
    runnable = [cell for cell in cells if not cell.clairvoyant]
    found = [f"{policy} at {_at(own, lambda cell: f'{_speedup(cell):.2f}x')}" for policy, own in _groups(runnable)]
    return [f"{verdict}: {'; '.join(found)}."] if found else []


def _arms(cells: list[Cell]) -> list[str]:
    """Which drafter each policy that tried several settled on."""
    sentences = []
    for policy, own in _groups([cell for cell in cells if not cell.clairvoyant]):
        if all(len(_drafting(cell)) < 2 for cell in own):
            continue
        settled: dict[str, list[Cell]] = {}
        for cell in own:
            arm, share = max(_drafting(cell).items(), key=lambda item: item[1], default=("", 0.0))
            settled.setdefault(arm if share >= SETTLED else UNSETTLED, []).append(cell)
        chosen = "; ".join(
            f"{arm} at {_at(where, _most_used if arm == UNSETTLED else _largest_share)}"
            for arm, where in settled.items()
        )
        sentences.append(f"{policy} settled on {chosen}{_arm_regret(own)}.")
    return sentences


def _drafting(cell: Cell) -> dict[str, float]:
    """Share of the drafting steps by drafter used."""
    used = {name: share for name, share in cell.arm_share.items() if name != "none" and share > 0}
    total = sum(used.values())
    return {name: share / total for name, share in used.items()}


def _most_used(cell: Cell) -> str:
    """The largest share and whose it is, where nobody has more than half."""
    arm, share = max(_drafting(cell).items(), key=lambda item: item[1], default=("nothing drafted", 0.0))
    return f"{100 * share:.0f} % {arm}"


def _largest_share(cell: Cell) -> str:
    return f"{100 * max(_drafting(cell).values(), default=0.0):.0f} %"


def _arm_regret(cells: list[Cell]) -> str:
    regrets = [cell.values["regret_to_best_arm"] for cell in cells if "regret_to_best_arm" in cell.values]
    if not regrets:
        return ""
    low, high = (f"{100 * regret:.1f} %" for regret in (min(regrets), max(regrets)))
    return f", at a regret of {low if low == high else f'{low} to {high}'} against the best single drafter"


def _bound(winners: list[Cell]) -> list[str]:
    """How much of the bound is reached; a policy that drafts less often than the bound may be beyond it."""
    compared = [cell for cell in winners if cell.share_of_clairvoyant is not None]
    reached = [cell for cell in compared if (cell.share_of_clairvoyant or 0.0) <= 1.0]
    beyond = [cell for cell in compared if cell not in reached]
    sentences = []
    if reached:
        share = _at(reached, _share_of_bound)
        sentences.append(f"of what a clairvoyant policy would bring, the fastest one brings at {share}.")
    if beyond:
        sentences.append(
            f"the clairvoyant bound, which drafts in every step, is below the fastest at {_at(beyond, None)}."
        )
    return sentences


def _groups(cells: list[Cell]) -> list[tuple[str, list[Cell]]]:
    """Cells by policy, in the order of their first load."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.policy, []).append(cell)
    return list(groups.items())


def _at(cells: list[Cell], write: Callable[[Cell], str] | None) -> str:
    """Loads of one kind in a row, each with what is written of it: `batch 4 (2.00x) and 8 (1.50x)`."""
    aside = ["" if write is None else f" ({write(cell)})" for cell in cells]
    if cells[0].rate:
        return f"rate {_listed(f'{cell.rate:g}/s{text}' for cell, text in zip(cells, aside, strict=True))}"
    return f"batch {_listed(f'{cell.batch}{text}' for cell, text in zip(cells, aside, strict=True))}"


def _speedup(cell: Cell) -> float:
    return cell.values["speedup"]


def _times(cell: Cell) -> str:
    low, high = cell.speedup_interval
    decimals = _decimals(low, high, 2)
    return f"{_speedup(cell):.{decimals}f}x" + (
        "" if math.isnan(low) else f", {low:.{decimals}f} to {high:.{decimals}f}"
    )


def _difference(cell: Cell) -> str:
    assert cell.difference_to_best_fixed is not None
    mean, low, high = (100 * value for value in cell.difference_to_best_fixed)
    decimals = _decimals(low, high, 1)
    return f"{mean:+.{decimals}f} %, {low:+.{decimals}f} to {high:+.{decimals}f}, against {cell.best_fixed}"


def _decimals(low: float, high: float, usual: int) -> int:
    """One decimal more than usual where an interval's ends would look alike without it."""
    return usual + int(low < high and f"{low:.{usual}f}" == f"{high:.{usual}f}")


def _share_of_bound(cell: Cell) -> str:
    assert cell.share_of_clairvoyant is not None
    return f"{100 * cell.share_of_clairvoyant:.0f} %"


def _listed(texts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    items = list(texts)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
