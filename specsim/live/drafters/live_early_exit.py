"""Early exit inside the engine: the target's first layers draft on the target's own cache."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from specsim.core import DrafterSpec, DraftLaw
from specsim.live.drafters.batch import DraftBatch, Drafted, Stop
from specsim.live.drafters.early_exit import EarlyExit
from specsim.live.drafters.stepwise import SCORE_SOURCES, STEPWISE_SCORES, draft_stepwise, feed_latest
from specsim.live.runner import ModelRunner


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
        self.score_source = definition.score_source if law == "point_mass" else SCORE_SOURCES[law]

    def draft(self, batch: DraftBatch, depth: int, stop: Stop | None = None) -> Drafted:
        """See `LiveDrafter.draft`."""
        return draft_stepwise(partial(feed_latest, self._runner, batch), batch, depth, self.spec.law, stop)

    def drafts_ahead(self, batch: DraftBatch) -> bool:
        """See `DraftsAhead.drafts_ahead`."""
        return True

    def drafted_ahead(self, batch: DraftBatch) -> None:
        """See `DraftsAhead.drafted_ahead`; nothing is kept."""

    def catch_up(self, batch: DraftBatch) -> None:
        """Nothing can be missed."""

    def release(self, slot: int) -> None:
        """Nothing is kept."""
