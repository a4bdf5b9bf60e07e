"""The three small Protocols a controller is composed of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from specsim.core import Array, Draft, DrafterSpec, Outcome, Score, StepContext, StepCost

BudgetTiming: TypeAlias = Literal["past", "fixed", "stop_after", "first_fall", "argmax"]
"""What a budget is chosen from: earlier steps, a constant, a stop that keeps the draft it stopped at, a first-fall
stop along the ranking, or the best of all candidates given this step's scores (an argmax looks ahead; see
docs/exactness.md)."""


class DrafterPolicy(Protocol):
    """Chooses the arm of each step and learns from what it brought.

    arms    every arm it could pull, as indices into the controller's drafters
    """

    @property
    def arms(self) -> tuple[int, ...]: ...

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """Index of the arm to draft with."""
        ...

    def update(self, arm: int, outcome: Outcome) -> None:
        """Learn from one step drafted by `arm`.

        Steps that drafted nothing (depth 0) are not reported, but where the budget policy chose that depth for this
        very arm (it says so by an attribute `depth_by_drafter`): then a plain step is what pulling the arm brings.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, JSON-able."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        ...


@runtime_checkable
class RequestPolicy(Protocol):
    """A drafter policy that can choose an arm for each request, where its `scope` is `request`."""

    def pull_each(self, context: StepContext, rng: np.random.Generator) -> list[int]:
        """[B] the arm to draft with for each request."""
        ...


class BudgetPolicy(Protocol):
    """Chooses how deep to draft, and how many of the drafts the target verifies.

    score       the score `plan` reads (None: none)
    timing      what chooses the budget, for the exactness check
    clairvoyant whether it reads `Draft.num_acceptable` (for reports only, refused live)
    drafts      whether it ever drafts; if not, it needs no drafter
    max_depth   most draft tokens it ever asks for (None: as many as the drafter can), so that engines can reserve;
                refused when no arm can draft that deep
    """

    @property
    def score(self) -> Score | None: ...

    @property
    def timing(self) -> BudgetTiming: ...

    @property
    def clairvoyant(self) -> bool: ...

    @property
    def drafts(self) -> bool: ...

    @property
    def max_depth(self) -> int | None: ...

    def draft_depth(self, context: StepContext, drafter: DrafterSpec) -> int:
        """Draft tokens a request this step; the controller caps it at `drafter.max_depth`."""
        ...

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """Verified prefix length of each request.

        draft       what was proposed
        confidence  [B, D] float64 in [0, 1], calibrated chance that each draft is accepted once those before it
                    are; no NaN; zeros when `score` is None
        cost        seconds at every budget
        returns     [B] int64, in [0, draft.num_drafts]
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


@runtime_checkable
class DraftStop(Protocol):
    """A budget policy that ends drafting before the ordered depth.

    An autoregressive drafter then makes fewer passes; a block drafter saves none, since one pass proposes all.
    """

    def draft_lengths(self, draft: Draft, confidence: Array, price: Callable[[int], StepCost]) -> Array:
        """Draft tokens of each request before drafting stops.

        Position k may depend on what was drafted before it only, so that an engine can ask after every pass with
        what it has so far and get the same answer as a replay that asks once with everything.

        draft       what drafting to the ordered depth would propose
        confidence  [B, D] float64, see `BudgetPolicy.plan`
        price       seconds of the step at every budget, had drafting stopped at a depth: price(depth)
        returns     [B] int64, in [min(1, num_drafts), num_drafts]
        """
        ...


class Calibrator(Protocol):
    """Turns a drafter's raw score into the chance that a draft is accepted once those before it are.

    scores  the raw scores it can turn into probabilities
    """

    @property
    def scores(self) -> tuple[Score, ...]: ...

    def calibrate(self, draft: Draft, score: Score) -> Array:
        """[B, D] float64, from `draft.scores[score]`; where that is NaN the result is not used."""
        ...

    def warming_up(self, draft: Draft) -> bool:
        """Whether it knows this drafter too little to prune by; then everything drafted is verified."""
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
"""The drafters of a run, in arm order."""
