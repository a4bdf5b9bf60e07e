"""What a live drafter is given in a step, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch

from specsim.core import DrafterSpec, Score


@dataclass(frozen=True, slots=True)
class DraftBatch:
    """The requests of a step, B of them.

    slots         [B] int64 numpy
    lengths       [B] int64 numpy, committed tokens; the last one, the anchor, is in no cache yet
    room          [B] int64 numpy, most drafts of each request
    device_slots, device_lengths, device_room   the same on the device
    history       [S, T] int64, tokens of every slot; drafts go to history[slot, length:]
    temperature   [B] float32, 0: greedy
    seeds         [B] int64
    positions     [B] int64, output tokens so far: the output position of the first draft
    top_k, top_p  [B] int64 and float32, filters of the target's law (None: no request has one)
    fed           [3, B] int64, slot, position of the anchor, and tokens of each that the target's pass feeds: the
                  anchor, and once it is known what is verified (None: a batch that no such pass is made of)
    bounds        whether `lengths` on the host are no more than bounds: the longest that the texts can be
    table         [6, B] int64, `fed`, then lengths, room and positions, in one tensor (None: they lie elsewhere)
    """

    slots: np.ndarray
    lengths: np.ndarray
    room: np.ndarray
    device_slots: torch.Tensor
    device_lengths: torch.Tensor
    device_room: torch.Tensor
    history: torch.Tensor
    temperature: torch.Tensor
    seeds: torch.Tensor
    positions: torch.Tensor
    top_k: torch.Tensor | None = None
    top_p: torch.Tensor | None = None
    fed: torch.Tensor | None = None
    table: torch.Tensor | None = None
    bounds: bool = False

    def __len__(self) -> int:
        return len(self.slots)


@dataclass(frozen=True, slots=True)
class Drafted:
    """What was proposed; the tokens themselves are in the history.

    num_drafts  [B] int64, on the device
    scores      each score, [B, D] float64 whose values are float32 numbers, so that a trace keeps them in bits; 0 at
                and beyond `num_drafts`
    log_prob    [B, D, V] float32, log-probabilities the drafts were drawn from (None: they are certain tokens)
    """

    num_drafts: torch.Tensor
    scores: dict[Score, torch.Tensor]
    log_prob: torch.Tensor | None = None


Stop: TypeAlias = Callable[[Drafted], bool]
"""Asked after each pass with what was drafted so far: whether drafting may end."""


class LiveDrafter(Protocol):
    """Something that drafts for a batch inside a step.

    spec            what a controller may know of it
    score_source    one sentence: how its confidence is made
    """

    @property
    def spec(self) -> DrafterSpec: ...

    @property
    def score_source(self) -> str: ...

    def draft(self, batch: DraftBatch, depth: int, stop: Stop | None = None) -> Drafted:
        """Draft up to `depth` tokens a request, and write them to the history.

        stop  asked after each pass where a policy may stop drafting; [B, fewer than depth] scores are then returned
        """
        ...

    def catch_up(self, batch: DraftBatch) -> None:
        """Compute what it missed while it was idle: all that is before each request's anchor."""
        ...

    def release(self, slot: int) -> None:
        """Forget a slot's request: the next one there starts from nothing."""
        ...


@runtime_checkable
class DraftsAhead(LiveDrafter, Protocol):
    """A drafter that can draft before the host knows how long the texts are: it reads that on the device.

    `draft` is then given a batch whose `lengths` are `bounds`. What it keeps of its own between steps stays as it was,
    until `drafted_ahead` says that the drafts were used; where they were not, it is never called.
    """

    def drafts_ahead(self, batch: DraftBatch) -> bool:
        """Whether it can, and is worth it, for a batch whose `lengths` are bounds and where all have room."""
        ...

    def drafted_ahead(self, batch: DraftBatch) -> None:
        """The drafts made ahead are this batch's, whose `lengths` are known now; others may have ended."""
        ...


def exact32(values: torch.Tensor) -> torch.Tensor:
    """float64 of values rounded to float32: what a trace stores is what was decided from."""
    return values.to(torch.float32).to(torch.float64)
