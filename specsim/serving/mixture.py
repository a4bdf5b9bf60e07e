"""A step whose requests have different drafters: what holds of all of them, and what drafting in turn takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.core import DrafterSpec, Order
from specsim.cost import CostTable


def common(drafters: tuple[DrafterSpec, ...]) -> DrafterSpec:
    """What holds of every one of several drafters: their common scores, and the stricter law and structure."""
    first = drafters[0]
    return DrafterSpec(
        name="+".join(drafter.name for drafter in drafters),
        kind="mixed",
        law="sampled" if any(drafter.law == "sampled" for drafter in drafters) else "point_mass",
        structure="autoregressive" if any(d.structure == "autoregressive" for d in drafters) else "parallel",
        scores=tuple(score for score in first.scores if all(score in drafter.scores for drafter in drafters)),
        max_depth=max(drafter.max_depth for drafter in drafters),
    )


@dataclass(frozen=True, slots=True)
class Share:
    """One drafter's part of a step.

    arm     index of the drafter
    own     [b] int64, rows of its requests in the batch, rising
    depth   draft tokens it proposes a request: what was ordered, or as many as it can
    """

    arm: int
    own: np.ndarray
    depth: int


def shares(order: Order, drafters: tuple[DrafterSpec, ...]) -> list[Share]:
    """Each drafter's part of a step, in arm order.

    order       names the drafter of each request
    drafters    of the run, in arm order
    """
    assert order.arms is not None
    return [
        Share(arm, np.flatnonzero(order.arms == arm), min(order.depth, drafters[arm].max_depth))
        for arm in np.unique(order.arms).tolist()
    ]


def deepest(parts: list[Share], drafters: tuple[DrafterSpec, ...]) -> DrafterSpec:
    """The deepest drafter that takes part: a step is priced as if it drafted for all."""
    return max((drafters[part.arm] for part in parts), key=lambda drafter: drafter.max_depth)


def draft_seconds(
    parts: list[Share], drafters: tuple[DrafterSpec, ...], order: Order, context: float, cost: CostTable
) -> float:
    """Seconds that drafting in turn takes beyond what the deepest drafter takes for all of them.

    context     mean sequence length, tokens
    returns     seconds, less than 0 where in turn is cheaper
    """
    assert order.arms is not None
    seconds = -cost.phases(deepest(parts, drafters), len(order.arms), order.depth, 0, context).draft
    for part in parts:
        seconds += cost.phases(drafters[part.arm], len(part.own), part.depth, 0, context).draft
    return seconds


def catching_up(missed: list[int], drafters: tuple[DrafterSpec, ...], cost: CostTable) -> float:
    """Seconds of each drafter's missed tokens, one drafter after the other.

    missed      tokens, by drafter
    """
    return sum(cost.switch_seconds(spec, tokens) for spec, tokens in zip(drafters, missed, strict=True) if tokens)
