"""A step whose requests have different drafters: each drafts for its own, in turn, and all are verified at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.core import Draft, DrafterSpec, Order, Score
from specsim.cost import CostTable
from specsim.serving.mixture import common, deepest, draft_seconds, shares
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
        parts, batch = shares(order, self.drafters), len(slots)
        spec = common(tuple(self.drafters[part.arm] for part in parts))
        num_drafts, acceptable = np.zeros(batch, np.int64), np.zeros(batch, np.int64)
        scores: dict[Score, np.ndarray] = {score: np.zeros((batch, order.depth)) for score in spec.scores}
        for part in parts:
            own, limit = part.own, self.limits[part.arm]
            room = None if limit is None else limit - state.length[slots[own]]
            draft, acceptable[own] = self.replay.draft(
                part.arm, slots[own], state.emitted[slots[own]], part.depth, room
            )
            num_drafts[own] = draft.num_drafts
            for score, values in scores.items():
                values[own, : part.depth] = draft.scores[score]
        more = draft_seconds(parts, self.drafters, order, mean_context, self.cost)
        draft = Draft(spec, num_drafts, scores, arms=order.arms)
        return Mixture(draft, acceptable, deepest(parts, self.drafters), more)
