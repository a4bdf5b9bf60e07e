"""What a study says in words: who wins where and by how much, who loses, what the bandit chose, what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from specsim.study.result import Cell

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
    winners = [winner for place in places.values() if (winner := _winner(place)) is not None]
    return [
        *_wins(winners),
        *_against_fixed(winners, places),
        *_by_policy(cells, lambda cell: cell.slower_than_autoregressive, "is slower than autoregressive at"),
        *_by_policy(
            [cell for cell in cells if not cell.slower_than_autoregressive],
            lambda cell: cell.not_distinguishable,
            "is not distinguishable from autoregressive at",
        ),
        *_arms(cells),
        *_bound(winners),
    ]


def _winner(place: list[Cell]) -> Cell | None:
    """The fastest policy that can be run and keeps the output law; the first of equals."""
    eligible = [cell for cell in place if not cell.clairvoyant and cell.lossy_reason is None]
    return max(eligible, key=_speedup, default=None)


def _wins(winners: list[Cell]) -> list[str]:
    sentences = []
    for policy, won in _groups(winners):
        loads = _listed(f"{_load(cell)} ({_times(cell)})" for cell in won)
        if policy == "autoregressive":
            sentences.append(f"nothing beats autoregressive decoding at {_listed(map(_load, won))}.")
        else:
            sentences.append(f"{policy} is the fastest at {loads}.")
    return sentences


def _against_fixed(winners: list[Cell], places: dict[tuple[int, float], list[Cell]]) -> list[str]:
    """How far the winner is from the best fixed choice, or the best adaptive policy from a fixed winner."""
    ahead: list[str] = []
    unclear: list[str] = []
    behind: list[str] = []
    for winner in winners:
        others = [cell for cell in places[winner.batch, winner.rate] if not cell.fixed]
        adaptive = _winner(others) if winner.fixed else winner
        if adaptive is None or adaptive.difference_to_best_fixed is None:
            continue
        _, low, high = adaptive.difference_to_best_fixed
        text = f"{_load(adaptive)} ({adaptive.policy} {_difference(adaptive)} against {adaptive.best_fixed})"
        (ahead if low > 0 else behind if high < 0 else unclear).append(text)
    sentences = []
    if ahead:
        sentences.append(f"adapting beats the best fixed policy at {_listed(ahead)}.")
    if unclear:
        sentences.append(f"the best adaptive and the best fixed policy are not distinguishable at {_listed(unclear)}.")
    if behind:
        sentences.append(f"no adaptive policy reaches the best fixed one at {_listed(behind)}.")
    return sentences


def _by_policy(cells: list[Cell], holds: Callable[[Cell], bool], verdict: str) -> list[str]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        if holds(cell) and not cell.clairvoyant:
            found.setdefault(cell.policy, []).append(cell)
    return [f"{policy} {verdict} {_listed(f'{_load(c)} ({_times(c)})' for c in own)}." for policy, own in found.items()]


def _arms(cells: list[Cell]) -> list[str]:
    """Which drafter each policy that tried several settled on."""
    sentences = []
    for policy in dict.fromkeys(cell.policy for cell in cells):
        own = [cell for cell in cells if cell.policy == policy]
        if all(len(_drafting(cell)) < 2 for cell in own):
            continue
        choices = [(cell, *max(_drafting(cell).items(), key=lambda item: item[1])) for cell in own if _drafting(cell)]
        settled: dict[str, list[str]] = {}
        for cell, arm, share in choices:
            name = arm if share >= SETTLED else "no drafter"
            settled.setdefault(name, []).append(f"{_load(cell)} ({100 * share:.0f} %)")
        chosen = "; ".join(f"{name} at {_listed(loads)}" for name, loads in settled.items())
        sentences.append(f"{policy} settled on {chosen}{_arm_regret(own)}.")
    return sentences


def _drafting(cell: Cell) -> dict[str, float]:
    """Share of the drafting steps by drafter used."""
    used = {name: share for name, share in cell.arm_share.items() if name != "none" and share > 0}
    total = sum(used.values())
    return {name: share / total for name, share in used.items()}


def _arm_regret(cells: list[Cell]) -> str:
    regrets = [cell.values["regret_to_best_arm"] for cell in cells if "regret_to_best_arm" in cell.values]
    if not regrets:
        return ""
    return f", at a regret of {_span(regrets, lambda r: f'{100 * r:.1f} %')} against the best single drafter"


def _bound(winners: list[Cell]) -> list[str]:
    reached = [(cell, cell.share_of_clairvoyant) for cell in winners if cell.share_of_clairvoyant is not None]
    if not reached:
        return []
    shares = _listed(f"{100 * share:.0f} % at {_load(cell)}" for cell, share in reached)
    return [f"the fastest policy reaches {shares} of what a clairvoyant one would."]


def _groups(cells: list[Cell]) -> list[tuple[str, list[Cell]]]:
    """Cells by policy, in the order of their first load."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.policy, []).append(cell)
    return list(groups.items())


def _speedup(cell: Cell) -> float:
    return cell.values["speedup"]


def _load(cell: Cell) -> str:
    return f"{cell.rate:g} requests/s" if cell.rate else f"batch {cell.batch}"


def _times(cell: Cell) -> str:
    low, high = cell.speedup_interval
    return f"{_speedup(cell):.2f}x, {low:.2f} to {high:.2f}"


def _difference(cell: Cell) -> str:
    assert cell.difference_to_best_fixed is not None
    mean, low, high = (100 * value for value in cell.difference_to_best_fixed)
    return f"{mean:+.1f} %, {low:+.1f} to {high:+.1f},"


def _span(values: list[float], write: Callable[[float], str]) -> str:
    low, high = write(min(values)), write(max(values))
    return low if low == high else f"{low} to {high}"


def _listed(texts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    items = list(texts)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
