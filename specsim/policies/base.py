"""The three small Protocols a controller is composed of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from specsim.core import Array, Draft, DrafterSpec, Outcome, Score, StepContext, StepCost

BudgetTiming: TypeAlias = Literal["past", "fixed", "first_fall", "argmax"]
"""What a budget is chosen from: earlier steps, a constant, a first-fall stop along the ranking, or the
best of all candidates given this step's scores (an argmax looks ahead; see docs/exactness.md)."""


class DrafterPolicy(Protocol):
    """Chooses the arm of each step and learns from what it brought."""

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """Index of the arm to draft with."""
        ...

    def update(self, arm: int, outcome: Outcome) -> None:
        """Learn from one step drafted by `arm`."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, JSON-able."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        ...


class BudgetPolicy(Protocol):
    """Chooses how deep to draft, and how many of the drafts the target verifies.

    score       the score `plan` reads (None: none)
    timing      what chooses the budget, for the exactness check
    clairvoyant whether it reads `Draft.num_acceptable` (for reports only, refused live)
    """

    score: Score | None
    timing: BudgetTiming
    clairvoyant: bool

    def depth(self, context: StepContext, drafter: DrafterSpec) -> int:
        """Draft tokens a request this step, in [0, drafter.max_depth]."""
        ...

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """Verified prefix length of each request.

        draft       what was proposed
        confidence  [B, D] float64, calibrated chance that each draft is accepted once those before it are
        cost        seconds at every budget
        returns     [B] int64
        """
        ...

    def observe(self, outcome: Outcome) -> None:
        """Learn from one step."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, JSON-able."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        ...


class Calibrator(Protocol):
    """Turns a drafter's raw score into the chance that a draft is accepted once those before it are."""

    def calibrate(self, draft: Draft, score: Score) -> Array:
        """[B, D] float64 in [0, 1], from `draft.scores[score]`."""
        ...

    def observe(self, outcome: Outcome) -> None:
        """Learn from one step."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, JSON-able."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        ...


Drafters: TypeAlias = Sequence[DrafterSpec]
