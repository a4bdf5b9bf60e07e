"""Prompt lookup inside the engine: each request's own text is searched at every step."""

from __future__ import annotations

import numpy as np
import torch

from specsim.core import DrafterSpec
from specsim.live.drafters.batch import DraftBatch, Drafted, Stop, exact32
from specsim.live.drafters.ngram import Ngram


class LiveNgram:
    """Drafts by copying; see `drafters.ngram.Ngram`, which it calls.

    max_depth   draft tokens a block
    """

    def __init__(self, max_depth: int) -> None:
        self._definition = Ngram(max_depth)
        self.spec: DrafterSpec = self._definition.spec
        self.score_source = self._definition.score_source

    def draft(self, batch: DraftBatch, depth: int, stop: Stop | None = None) -> Drafted:
        """See `LiveDrafter.draft`; one look-up proposes the whole block, so it never stops early."""
        history = batch.history.numpy()
        confidence = np.zeros((len(batch), depth))
        num_drafts = np.zeros(len(batch), np.int64)
        for row, (slot, length, room) in enumerate(zip(batch.slots, batch.lengths, batch.room, strict=True)):
            tokens, scores = self._definition.propose(history[slot, :length])
            count = min(len(tokens), depth, max(int(room), 0))
            history[slot, length : length + count] = tokens[:count]
            confidence[row, :count] = scores[:count]
            num_drafts[row] = count
        scores_ = {"drawn_prob": exact32(torch.from_numpy(confidence))}
        return Drafted(torch.from_numpy(num_drafts), scores_)  # type: ignore[arg-type]

    def catch_up(self, batch: DraftBatch) -> None:
        """Nothing can be missed."""

    def release(self, slot: int) -> None:
        """Nothing is kept."""
