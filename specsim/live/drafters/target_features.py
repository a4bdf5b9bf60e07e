"""What a trained drafter reads of the target: hidden states of committed tokens, embedding and LM head."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from specsim.errors import InputError
from specsim.live.drafters.batch import DraftBatch
from specsim.live.engine import LiveSetup
from specsim.live.mixing import rows_of
from specsim.live.models import LoadedModel
from specsim.live.packed_passes import Rows

MOST_TOKENS = 2048
"""Tokens of a pass that brings a drafter's cache up to date."""


MOST_TOKENS_AHEAD = 256
"""Tokens of such a pass that is launched before the host knows how many it needs, as many as there can be."""


class TargetFeatures:
    """Hidden states of some target layers, kept beside the target's keys and values.

    layers  0-based
    setup   the device side of the engine
    """

    def __init__(self, layers: tuple[int, ...], setup: LiveSetup) -> None:
        self._kept = setup.runner.listen(layers)
        self._setup = setup
        model = setup.target.model
        self.embedding: torch.Tensor = model.get_input_embeddings().weight
        self.head: torch.Tensor = model.get_output_embeddings().weight
        self.vocab_size = int(self.head.shape[0])

    def of(self, slots: torch.Tensor, starts: torch.Tensor, counts: torch.Tensor, size: int) -> torch.Tensor:
        """[size, F * hidden] of runs of positions, packed."""
        setup = self._setup
        table = setup.pool.device_table()
        packed = setup.ops.pack(setup.state.history, slots, starts, counts, table, setup.block_size, size)
        return torch.cat([values.index_select(0, packed.kv_index) for values in self._kept], dim=-1)


class Progress:
    """How far each slot's cache goes: positions whose keys were made from the target's own hidden states.

    num_slots  slots
    """

    def __init__(self, num_slots: int) -> None:
        self._complete = np.zeros(num_slots, np.int64)

    def release(self, slot: int) -> None:
        """The next request of the slot starts from nothing."""
        self._complete[slot] = 0

    def missing(self, batch: DraftBatch) -> tuple[np.ndarray, np.ndarray]:
        """First position that is missing, and how many are up to the one before the anchor: [B] int64 each."""
        first = np.minimum(self._complete[batch.slots], batch.lengths - 1)
        return first, batch.lengths - 1 - first

    def catch_up(self, batch: DraftBatch, setup: LiveSetup, absorb: Callable[[Rows], object]) -> None:
        """Compute all that is missing in passes of bounded size, in batch order.

        Requests without room for a draft are left out: their texts may be longer than the drafter can read.
        """
        batch, _ = with_room(batch, setup)
        first, missing = self.missing(batch)
        while missing.any():
            counts = np.diff(np.minimum(np.cumsum(missing), MOST_TOKENS), prepend=0)
            fed = np.flatnonzero(counts)
            there = setup.state.on_device(np.stack([batch.slots[fed], first[fed], counts[fed]]))
            absorb(Rows(there[0], there[1], there[2], int(counts.sum())))
            first, missing = first + counts, missing - counts
        self.done(batch)

    def done(self, batch: DraftBatch) -> None:
        """Everything before the anchors is there; of what is made ahead, that is said once it is used."""
        if not batch.bounds:
            self._complete[batch.slots] = batch.lengths - 1

    def fits_ahead(self, batch: DraftBatch) -> bool:
        """Whether one pass brings the cache up to date that is not much larger than it need be."""
        return int(self.missing(batch)[1].sum()) <= MOST_TOKENS_AHEAD


def with_room(batch: DraftBatch, setup: LiveSetup) -> tuple[DraftBatch, torch.Tensor | None]:
    """The requests that may get a draft, and which rows they are (None: all of them)."""
    if (batch.room > 0).all():
        return batch, None
    rows = np.flatnonzero(batch.room > 0)
    return rows_of(batch, rows, setup.state), setup.state.on_device(rows)


def check_target(name: str, hidden_size: int, vocab_size: int, target: LoadedModel) -> None:
    """Refuse a drafter that was made for another target.

    Raises  InputError naming what differs
    """
    model = target.model
    own = {"hidden states of": hidden_size, "vocabulary of": vocab_size}
    embedding = model.get_input_embeddings().weight
    theirs = {"hidden states of": int(embedding.shape[1]), "vocabulary of": int(embedding.shape[0])}
    for what, size in own.items():
        if size != theirs[what]:
            raise InputError(
                f"drafter {name!r} was made for a target with {what} {size}; {target.name!r} has {theirs[what]}"
            )
