"""What became lately of the drafts at each position of a drafter: verified, accepted, or neither."""

from __future__ import annotations

from typing import Any

import numpy as np

from specsim.core import Outcome


class YieldMemory:
    """Shares of requests whose draft at a position was verified, and accepted, older steps counting less.

    alpha  what every step takes off the weight of those before it
    prior  share assumed of a position to go on from the one before it, as strong as one request

    A draft that was pruned, or never proposed, counts as not accepted: what is remembered is what drafting so deep
    brings in practice, not how good drafts are. A position is counted in steps drafted that deep alone, and goes back
    to the prior where it no longer is; an optimistic prior therefore makes a policy look again now and then.
    """

    def __init__(self, alpha: float, prior: float) -> None:
        self.alpha = alpha
        self.prior = prior
        self.counts = np.zeros((4, 0))  # [4, D] verified, of those before; accepted, of those before

    def shares(self, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Of a request drafted to each depth.

        returns  [depth + 1] float64 each, drafts accepted and drafts verified
        """
        self._grow(depth)
        verified, drafted, accepted, reached = self.counts[:, :depth]
        nothing = np.zeros(1)
        going_on = (self.prior + accepted) / (1.0 + reached)
        kept = (self.prior + verified) / (1.0 + drafted)
        return (
            np.concatenate([nothing, np.cumsum(np.cumprod(going_on))]),
            np.concatenate([nothing, np.cumsum(np.cumprod(kept))]),
        )

    def add(self, outcome: Outcome) -> None:
        """Count one step; one that drafted nothing only lets time pass."""
        depth = outcome.order.depth
        self._grow(depth)
        positions = np.arange(depth)[:, None]
        self.counts *= 1.0 - self.alpha
        for row, lengths in ((0, outcome.num_verify), (2, outcome.num_accepted)):
            self.counts[row, :depth] += (positions < lengths).sum(axis=1)
            self.counts[row + 1, :depth] += (positions <= lengths).sum(axis=1)

    def state_dict(self) -> dict[str, Any]:
        """The counts, JSON-able."""
        return {"counts": self.counts.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.counts = np.array(state["counts"], np.float64).reshape(4, -1)

    def _grow(self, depth: int) -> None:
        if self.counts.shape[1] < depth:
            self.counts = np.pad(self.counts, ((0, 0), (0, depth - self.counts.shape[1])))
