"""How often each draft position of a drafter was accepted lately, from accept tests alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from specsim.core import Outcome


class AcceptanceMemory:
    """Accepted and tested drafts by position, older steps counting less.

    alpha  what every step takes off the weight of those before it
    prior  chance assumed of a position, as strong as one test

    Only tested drafts are counted, so pruned and short drafts bias nothing. A position that is not tested any more
    forgets, and goes back to the prior; an optimistic prior therefore makes a policy look again now and then.
    """

    def __init__(self, alpha: float, prior: float) -> None:
        self.alpha = alpha
        self.prior = prior
        self.accepted: dict[str, np.ndarray] = {}  # [D] by drafter
        self.tested: dict[str, np.ndarray] = {}

    def chances(self, drafter: str, depth: int) -> np.ndarray:
        """Chance that each draft is accepted once those before it are.

        returns  [depth] float64
        """
        self._grow(drafter, depth)
        return (self.prior + self.accepted[drafter][:depth]) / (1.0 + self.tested[drafter][:depth])

    def add(self, drafter: str, outcome: Outcome) -> None:
        """Count one step of a drafter; one that drafted nothing only lets time pass."""
        tested, accepted = outcome.num_tested, outcome.num_accepted
        self._grow(drafter, int(tested.max(initial=0)))
        positions = np.arange(len(self.tested[drafter]))[:, None]
        keep = 1.0 - self.alpha
        self.tested[drafter] = keep * self.tested[drafter] + (positions < tested).sum(axis=1)
        self.accepted[drafter] = keep * self.accepted[drafter] + (positions < accepted).sum(axis=1)

    def state_dict(self) -> dict[str, Any]:
        """The counts, JSON-able."""
        return {name: [self.accepted[name].tolist(), self.tested[name].tolist()] for name in self.tested}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.accepted = {name: np.array(accepted, np.float64) for name, (accepted, _) in state.items()}
        self.tested = {name: np.array(tested, np.float64) for name, (_, tested) in state.items()}

    def _grow(self, drafter: str, depth: int) -> None:
        for counts in (self.accepted, self.tested):
            known = counts.setdefault(drafter, np.zeros(0))
            if len(known) < depth:
                counts[drafter] = np.pad(known, (0, depth - len(known)))
