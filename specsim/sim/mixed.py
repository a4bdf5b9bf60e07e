"""A step whose requests have different drafters: each drafts for its own, in turn, and all are verified at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.core import Draft, DrafterSpec, Order, Score
from specsim.cost import CostTable
from specsim.serving.slots import Slots
from specsim.sim.replay import Replay


@dataclass(frozen=True, slots=True)
class Mixture:
    """What several drafters propose in one step.

    draft           of all requests together
    acceptable      [B] int64, leading drafts the target would accept
    drafter         the deepest one that takes part: the step is priced as if it drafted for all
    draft_seconds   what drafting takes more (or less) than that
    """

    draft: Draft
    acceptable: np.ndarray
    drafter: DrafterSpec
    draft_seconds: float


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


class Mixer:
    """Drafts with several drafters.

    replay  what each proposes
    cost    what each takes
    limits  longest sequence each can draft after, drafts included (None: no limit)
    """

    def __init__(self, replay: Replay, cost: CostTable, limits: list[int | None]) -> None:
        self.replay, self.cost, self.limits = replay, cost, limits
        self.drafters = replay.trace.drafters

    def mix(self, order: Order, slots: np.ndarray, state: Slots, mean_context: float) -> Mixture:
        """What they propose to a batch.

        order   names the drafter of each request
        slots   [B] int64
        state   of the running requests
        """
        assert order.arms is not None
        arms, batch = np.unique(order.arms).tolist(), len(slots)
        spec = common(tuple(self.drafters[arm] for arm in arms))
        deepest = max((self.drafters[arm] for arm in arms), key=lambda drafter: drafter.max_depth)
        num_drafts, acceptable = np.zeros(batch, np.int64), np.zeros(batch, np.int64)
        scores: dict[Score, np.ndarray] = {score: np.zeros((batch, order.depth)) for score in spec.scores}
        seconds = -self.cost.phases(deepest, batch, order.depth, 0, mean_context).draft
        for arm in arms:
            own = np.flatnonzero(order.arms == arm)
            depth, limit = min(order.depth, self.drafters[arm].max_depth), self.limits[arm]
            room = None if limit is None else limit - state.length[slots[own]]
            draft, acceptable[own] = self.replay.draft(arm, slots[own], state.emitted[slots[own]], depth, room)
            num_drafts[own] = draft.num_drafts
            for score, values in scores.items():
                values[own, :depth] = draft.scores[score]
            seconds += self.cost.phases(self.drafters[arm], len(own), depth, 0, mean_context).draft
        return Mixture(Draft(spec, num_drafts, scores, arms=order.arms), acceptable, deepest, seconds)
