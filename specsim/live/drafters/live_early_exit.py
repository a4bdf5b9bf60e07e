"""Early exit inside the engine: the target's first layers draft on the target's own cache."""

from __future__ import annotations

from dataclasses import replace

from specsim.core import DrafterSpec, DraftLaw, Score
from specsim.live.drafters.batch import DraftBatch, Drafted, Stop
from specsim.live.drafters.early_exit import EarlyExit
from specsim.live.drafters.stepwise import draft_stepwise
from specsim.live.runner import ModelRunner

STEPWISE_SCORES: tuple[Score, ...] = ("drawn_prob", "max_prob", "margin", "shifted_prob")


class LiveEarlyExit:
    """Drafts with the target's first layers.

    It has no cache of its own: what it writes for a draft is what the target's first layers would write, and the
    verifying pass writes it again.

    definition  the exit, as the recorder uses it
    runner      passes of its layers over the target's cache
    law         see `draft_stepwise`
    """

    def __init__(self, definition: EarlyExit, runner: ModelRunner, law: DraftLaw = "point_mass") -> None:
        self._runner = runner
        self.spec: DrafterSpec = replace(definition.spec, law=law, scores=STEPWISE_SCORES)
        self.score_source = definition.score_source

    def draft(self, batch: DraftBatch, depth: int, stop: Stop | None = None) -> Drafted:
        """See `LiveDrafter.draft`."""
        return draft_stepwise(self._runner, batch, depth, self.spec.law, stop)

    def catch_up(self, batch: DraftBatch) -> None:
        """Nothing can be missed."""

    def release(self, slot: int) -> None:
        """Nothing is kept."""
