"""Prompt lookup inside the engine: each request's own text is searched at every step."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from specsim.core import DrafterSpec
from specsim.live.drafters.batch import DraftBatch, Drafted, Stop, exact32
from specsim.live.drafters.ngram import Ngram
from specsim.live.drafters.ngram_batch import draft_by_lookup


class LiveNgram:
    """Drafts by copying; see `drafters.ngram.Ngram`, which defines it.

    max_depth   draft tokens a block
    device      where histories are: on CUDA the whole batch is looked up at once, elsewhere the definition is called
    """

    def __init__(self, max_depth: int, device: Any = "cpu") -> None:
        definition = Ngram(max_depth)
        self.spec: DrafterSpec = definition.spec
        self.score_source = definition.score_source
        on_cuda = torch.device(device).type == "cuda"
        self._reads_lengths = not on_cuda
        self._look_up = partial(draft_by_lookup, max_depth=max_depth) if on_cuda else partial(_draft_each, definition)

    def draft(self, batch: DraftBatch, depth: int, stop: Stop | None = None) -> Drafted:
        """See `LiveDrafter.draft`; one look-up proposes the whole block, so it never stops early."""
        return self._look_up(batch, depth)

    def drafts_ahead(self, batch: DraftBatch) -> bool:
        """See `DraftsAhead.drafts_ahead`."""
        return not self._reads_lengths

    def drafted_ahead(self, batch: DraftBatch) -> None:
        """See `DraftsAhead.drafted_ahead`; nothing is kept."""

    def catch_up(self, batch: DraftBatch) -> None:
        """Nothing can be missed."""

    def release(self, slot: int) -> None:
        """Nothing is kept."""


def _draft_each(definition: Ngram, batch: DraftBatch, depth: int) -> Drafted:
    """The definition for one request after the other, in the memory of the host."""
    history = batch.history.numpy()
    confidence = np.zeros((len(batch), depth))
    num_drafts = np.zeros(len(batch), np.int64)
    for row, (slot, length, room) in enumerate(zip(batch.slots, batch.lengths, batch.room, strict=True)):
        tokens, scores = definition.propose(history[slot, :length])
        count = min(len(tokens), depth, max(int(room), 0))
        history[slot, length : length + count] = tokens[:count]
        confidence[row, :count] = scores[:count]
        num_drafts[row] = count
    return Drafted(torch.from_numpy(num_drafts), {"drawn_prob": exact32(torch.from_numpy(confidence))})
