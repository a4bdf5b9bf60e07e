"""Accept tests as calibrators see them: scores, how many drafts were tested, how many accepted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(slots=True)
class Observations:
    """Request-steps of one drafter.

    raw       [N, D] float64, the score at each position
    tested    [N] int64, drafts that met an accept test; pruned ones and those behind a rejection did not
    accepted  [N] int64, tested drafts accepted
    """

    raw: np.ndarray
    tested: np.ndarray
    accepted: np.ndarray

    @classmethod
    def empty(cls) -> Observations:
        """None yet."""
        return cls(np.empty((0, 0)), np.empty(0, np.int64), np.empty(0, np.int64))

    def add(self, raw: np.ndarray, tested: np.ndarray, accepted: np.ndarray, most: int) -> None:
        """Append request-steps and keep the latest `most`."""
        depth = max(self.raw.shape[1], raw.shape[1])
        parts = [np.pad(part, ((0, 0), (0, depth - part.shape[1]))) for part in (self.raw, raw)]
        self.raw = np.concatenate(parts)[-most:]
        self.tested = np.concatenate([self.tested, tested])[-most:]
        self.accepted = np.concatenate([self.accepted, accepted])[-most:]

    def at(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores [M] and accepted [M] bool of the drafts tested at a position; the censored are left out."""
        rows = (self.tested > position) & np.isfinite(self.raw[:, position])
        return self.raw[rows, position], self.accepted[rows] > position

    def state_dict(self) -> dict[str, Any]:
        """Everything, JSON-able; a score that is no number becomes null."""
        raw = [[value if np.isfinite(value) else None for value in row] for row in self.raw.tolist()]
        return {
            "raw": raw,
            "depth": self.raw.shape[1],
            "tested": self.tested.tolist(),
            "accepted": self.accepted.tolist(),
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Observations:
        """The ones a `state_dict` was made of."""
        raw = np.array(state["raw"], dtype=np.float64).reshape(len(state["raw"]), int(state["depth"]))
        return cls(raw, np.array(state["tested"], np.int64), np.array(state["accepted"], np.int64))
