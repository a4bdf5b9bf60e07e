"""Traces written by hand, so that what a run must do can be counted on fingers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from specsim.core import Blocks, DrafterSpec
from specsim.trace.manifest import Manifest
from specsim.trace.requests import FINISH_REASONS, Requests


def drafter(name: str = "block", max_depth: int = 4, **changes: object) -> DrafterSpec:
    """A block drafter of certain tokens."""
    values = {"kind": "block", "law": "point_mass", "structure": "parallel", "scores": ("drawn_prob",)} | changes
    return DrafterSpec(name=name, max_depth=max_depth, **values)  # type: ignore[arg-type]


@dataclass
class HandRequest:
    """One request.

    accepted    leading drafts accepted at each output position, cut where the output ends; one list an arm,
                or one number for everywhere
    """

    num_output_tokens: int
    accepted: int | Sequence[int] | Sequence[Sequence[int]]
    num_prompt_tokens: int = 10
    finish_reason: str = "length"
    confidence: float | np.ndarray = 0.5
    num_drafts: int | None = None
    arrival_at: float = float("nan")
    domain: str = "all"


@dataclass
class HandTrace:
    """A position-indexed trace in memory."""

    entries: list[HandRequest]
    drafters: tuple[DrafterSpec, ...] = field(default_factory=lambda: (drafter(),))
    kind: str = "position_indexed"
    censored_at: int | None = None

    @property
    def manifest(self) -> Manifest:
        raise NotImplementedError("a trace in memory has no manifest")

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def requests(self) -> Requests:
        names = tuple(dict.fromkeys(entry.domain for entry in self.entries))
        count = len(self.entries)
        return Requests(
            request_id=np.arange(100, 100 + count),
            domain=np.array([names.index(entry.domain) for entry in self.entries], np.int64),
            domains=names,
            num_prompt_tokens=np.array([entry.num_prompt_tokens for entry in self.entries], np.int64),
            num_output_tokens=np.array([entry.num_output_tokens for entry in self.entries], np.int64),
            finish_reason=np.array([FINISH_REASONS.index(entry.finish_reason) for entry in self.entries], np.int64),
            arrival_at=np.array([entry.arrival_at for entry in self.entries], np.float64),
            prompt_id=np.zeros(count, np.int64),
            has_prompt_id=np.zeros(count, bool),
        )

    def blocks(self, index: int, arm: int) -> Blocks:
        entry, depth = self.entries[index], self.drafters[arm].max_depth
        positions = np.arange(entry.num_output_tokens)
        left = entry.num_output_tokens - positions
        accepted = entry.accepted
        if not isinstance(accepted, int) and not isinstance(accepted[0], int | np.integer):
            accepted = accepted[arm]  # type: ignore[assignment]
        num_drafts = np.full(len(positions), depth if entry.num_drafts is None else entry.num_drafts, np.int64)
        num_accepted = np.minimum(np.minimum(np.broadcast_to(accepted, positions.shape), num_drafts), left)
        num_verified = np.minimum(num_drafts, left)
        if self.censored_at is not None:
            num_verified[self.censored_at] = 0
        confidence = np.broadcast_to(entry.confidence, (len(positions), depth)).astype(np.float64)
        confidence = np.where(np.arange(depth) < num_drafts[:, None], confidence, 0.0)
        return Blocks(num_drafts, num_accepted.astype(np.int64), num_verified, {"drawn_prob": confidence})
