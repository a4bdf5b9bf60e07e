"""Survival of earlier steps, request by request: what a budget may be chosen from without looking ahead."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from array_api_compat import to_device

from specsim.core import Array, Draft

Start: TypeAlias = Literal["optimistic", "corrected"]
"""What is assumed of a request without a past: that every draft survives, or what survived on average so far."""


class SurvivalMemory:
    """The last `lag` survival curves of every running request, on the host.

    lag     steps between a curve and the budget chosen from it, at least 1
    start   what is assumed of a request that has not lived `lag` steps yet
    """

    def __init__(self, lag: int, start: Start) -> None:
        self.lag = lag
        self.start = start
        self.curves = np.zeros((lag, 0, 0))  # [lag, slots, D], the latest first
        self.known = np.zeros(0, np.int64)  # [slots] curves remembered of the slot's request
        self.total = np.zeros(0)  # [D] sum of all curves seen
        self.count = 0  # how many
        self._pending: tuple[np.ndarray, np.ndarray, Array] | None = None

    def recall(self, draft: Draft, depth: int) -> np.ndarray:
        """Survival `lag` steps ago.

        draft    the step's draft; without slots every request is taken for a new one
        depth    columns, D
        returns  [D, B] float64, non-increasing along D
        """
        batch = draft.num_drafts.shape[0]
        curves = np.repeat(self._initial(depth)[:, None], batch, axis=1)
        if draft.slots is not None and draft.ages is not None:
            self._grow(int(draft.slots.max(initial=-1)) + 1, depth)
            old = (self.known[draft.slots] >= self.lag) & (draft.ages > 0)
            curves[:, old] = self.curves[-1, draft.slots[old], :depth].T
        return curves

    def note(self, draft: Draft, scores: Array) -> None:
        """Keep this step's survival until the step is over.

        scores  [D, B] float64, undrafted positions negative
        """
        if draft.slots is not None and draft.ages is not None:
            self._pending = (draft.slots, draft.ages, scores)

    def commit(self) -> None:
        """The step is over: what was noted becomes the latest past."""
        if self._pending is None:
            return
        slots, ages, scores = self._pending
        self._pending = None
        curves = np.maximum(np.from_dlpack(to_device(scores, "cpu")), 0.0).T
        depth = curves.shape[1]
        self._grow(int(slots.max(initial=-1)) + 1, depth)
        self.known[slots[ages == 0]] = 0
        self.curves[1:, slots] = self.curves[:-1, slots]
        self.curves[0, slots] = 0.0
        self.curves[0, slots, :depth] = curves
        self.known[slots] += 1
        self.total[:depth] += curves.sum(axis=0)
        self.count += len(slots)

    def _initial(self, depth: int) -> np.ndarray:
        """[D] float64 survival assumed of a request without a past."""
        if self.start == "optimistic" or self.count == 0:
            return np.ones(depth)
        mean = np.zeros(depth)
        seen = min(depth, len(self.total))
        mean[:seen] = self.total[:seen] / self.count
        return mean

    def _grow(self, slots: int, depth: int) -> None:
        more_slots = max(0, slots - self.curves.shape[1])
        more_depth = max(0, depth - self.curves.shape[2])
        if more_slots or more_depth:
            self.curves = np.pad(self.curves, ((0, 0), (0, more_slots), (0, more_depth)))
            self.known = np.pad(self.known, (0, more_slots))
            self.total = np.pad(self.total, (0, more_depth))

    def state_dict(self) -> dict[str, Any]:
        """What is remembered, JSON-able."""
        return {
            "curves": self.curves.tolist(),
            "known": self.known.tolist(),
            "total": self.total.tolist(),
            "count": self.count,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`.

        Raises  ValueError when it was made with another lag
        """
        slots, depth = len(state["known"]), len(state["total"])
        curves = np.array(state["curves"], dtype=np.float64)
        if curves.shape[0] != self.lag:
            raise ValueError(f"the state has a lag of {curves.shape[0]} steps, this policy {self.lag}")
        self.curves = curves.reshape(self.lag, slots, depth)
        self.known = np.array(state["known"], dtype=np.int64)
        self.total = np.array(state["total"], dtype=np.float64)
        self.count = int(state["count"])
        self._pending = None
