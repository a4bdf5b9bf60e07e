"""Seconds of a step as a straight line in what it computes, fitted while the engine runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from specsim.core import Outcome

RIDGE = 1e-9
"""Pull towards 0, so that the fit exists from the first step on; what was never tried looks cheap, and is tried."""


class LinearSeconds:
    """seconds = w0 + w1 tokens verified + w2 depth drafted, by least squares, older steps counting less.

    alpha  what every step takes off the weight of those before it

    Source: SmartSpec (arXiv 2406.14066), the linear model of batch time, fitted online and with draft passes as a
    term of their own.
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self.gram = np.zeros((3, 3))
        self.moment = np.zeros(3)

    def add(self, outcome: Outcome) -> None:
        """Count one step, without its prompts and without a drafter's catching up."""
        tokens = len(outcome.num_emitted) + int(outcome.num_verify.sum())
        row = np.array([1.0, tokens, outcome.order.depth])
        seconds = outcome.seconds.total - outcome.seconds.switch - outcome.seconds.prefill
        keep = 1.0 - self.alpha
        self.gram = keep * self.gram + np.outer(row, row)
        self.moment = keep * self.moment + seconds * row

    def predict(self, batch: int, depths: np.ndarray) -> np.ndarray:
        """Seconds of a step in which every request verifies all of `depths` drafts; above 0.

        depths   [K] int64
        returns  [K] float64
        """
        scale = np.sqrt(np.maximum(np.diagonal(self.gram), RIDGE))  # tokens count in hundreds, depth in ones
        weights = np.linalg.solve(self.gram / np.outer(scale, scale) + RIDGE * np.eye(3), self.moment / scale) / scale
        rows = np.stack([np.ones(len(depths)), batch * (depths + 1.0), depths.astype(np.float64)], axis=1)
        return np.maximum(rows @ weights, RIDGE)

    def state_dict(self) -> dict[str, Any]:
        """The sums, JSON-able."""
        return {"gram": self.gram.tolist(), "moment": self.moment.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.gram = np.array(state["gram"], np.float64).reshape(3, 3)
        self.moment = np.array(state["moment"], np.float64).reshape(3)
