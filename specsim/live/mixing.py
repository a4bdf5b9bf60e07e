"""A live step whose requests have different drafters: each drafts for its own, in turn; all are verified at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from specsim.core import DrafterSpec, Order, Score
from specsim.cost import CostTable
from specsim.live.drafters.batch import DraftBatch, Drafted, LiveDrafter
from specsim.live.phase_clock import PhaseClock
from specsim.live.state import SlotState
from specsim.serving.mixture import Share, common, deepest, draft_seconds, shares


class Mixer:
    """Drafts with several drafters, and merges what they propose.

    drafters    the arms
    limits      longest sequence each can draft after, drafts included
    state       tokens of every slot
    vocabulary  tokens of the target
    clock       told when drafters have caught up, and when they have drafted
    """

    def __init__(
        self,
        drafters: Sequence[LiveDrafter],
        limits: Sequence[int],
        state: SlotState,
        vocabulary: int,
        clock: PhaseClock,
    ) -> None:
        self._drafters, self._limits = drafters, np.array(limits, np.int64)
        self._specs = tuple(drafter.spec for drafter in drafters)
        self._depths = np.array([spec.max_depth for spec in self._specs], np.int64)
        self._state, self._vocabulary, self._clock = state, vocabulary, clock

    def room(self, order: Order, lengths: np.ndarray) -> np.ndarray:
        """[B] int64, most drafts of each request by its own drafter.

        lengths  [B] int64
        """
        assert order.arms is not None
        depth = np.minimum(self._depths[order.arms], order.depth)
        return np.clip(self._limits[order.arms] - lengths, 0, depth)

    def spec(self, order: Order) -> DrafterSpec:
        """What holds of all drafters that take part."""
        return common(tuple(self._specs[part.arm] for part in shares(order, self._specs)))

    def price(self, order: Order, context: float, cost: CostTable) -> tuple[DrafterSpec, float]:
        """Whom a step is priced as, and what drafting in turn takes beyond that, seconds.

        context  mean sequence length, tokens
        """
        parts = shares(order, self._specs)
        return deepest(parts, self._specs), draft_seconds(parts, self._specs, order, context, cost)

    def draft(self, order: Order, batch: DraftBatch, missed: list[int]) -> Drafted:
        """What each drafter proposes to its own requests, together.

        missed  tokens each drafter must compute before it can draft, by arm
        """
        parts = shares(order, self._specs)
        drafted = []
        for part in parts:
            own = rows_of(batch, part.own, self._state)
            if missed[part.arm]:
                self._drafters[part.arm].catch_up(own)
                self._clock.mark("switch")
            drafted.append(self._drafters[part.arm].draft(own, part.depth))
            self._clock.mark("draft")
        return self._merge(order, batch, parts, drafted)

    def _merge(self, order: Order, batch: DraftBatch, parts: list[Share], drafted: list[Drafted]) -> Drafted:
        """One draft of the whole batch, with the scores that all offer, and a law of each if any has one."""
        size, depth = len(batch), order.depth
        device = batch.device_lengths.device
        num_drafts = torch.zeros(size, dtype=torch.int64, device=device)
        scores: dict[Score, torch.Tensor] = {
            score: torch.zeros((size, depth), dtype=torch.float64, device=device) for score in self.spec(order).scores
        }
        law = self._no_law(size, depth, device) if any(one.log_prob is not None for one in drafted) else None
        for part, one in zip(parts, drafted, strict=True):
            own = self._state.on_device(part.own)
            num_drafts[own] = one.num_drafts
            for score, values in scores.items():
                values[own, : part.depth] = one.scores[score]
            if law is not None:
                log_prob = self._certain(batch, own, part.depth) if one.log_prob is None else one.log_prob
                law[own, : part.depth, : log_prob.shape[2]] = log_prob
        return Drafted(num_drafts, scores, law)

    def _no_law(self, size: int, depth: int, device: torch.device) -> torch.Tensor:
        return torch.full((size, depth, self._vocabulary), float("-inf"), dtype=torch.float32, device=device)

    def _certain(self, batch: DraftBatch, own: torch.Tensor, depth: int) -> torch.Tensor:
        """[b, depth, V], all probability on the drafted tokens: a certain token is exact by the rule of drawn ones too.

        But its request's output is then one of the target's law, and not the one its seed gives where nobody draws.
        """
        places = batch.device_lengths[own, None] + torch.arange(depth, device=own.device)
        tokens = batch.history[batch.device_slots[own, None], places].clamp(min=0)  # behind the drafts may be anything
        return self._no_law(len(own), depth, own.device).scatter_(2, tokens[:, :, None], 0.0)


def rows_of(batch: DraftBatch, own: np.ndarray, state: SlotState) -> DraftBatch:
    """Some requests of a step.

    own     [b] int64, which rows
    """
    there = state.on_device(own)
    return DraftBatch(
        batch.slots[own], batch.lengths[own], batch.room[own], batch.device_slots[there],
        batch.device_lengths[there], batch.device_room[there], batch.history, batch.temperature[there],
        batch.seeds[there], batch.positions[there], None if batch.top_k is None else batch.top_k[there],
        None if batch.top_p is None else batch.top_p[there],
    )  # fmt: skip
