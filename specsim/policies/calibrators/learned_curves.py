"""What every learning calibrator shares: collect accept tests, refit now and then, drafter by drafter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar

import numpy as np
from array_api_compat import to_device
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Array, Draft, Outcome, Score
from specsim.policies.calibrators.curves import knots_of, prior_curve, read_curves
from specsim.policies.calibrators.observations import Observations
from specsim.policies.survival import namespace


@dataclass(kw_only=True)
class LearnedCurves(ABC):
    """A curve for each draft position and drafter, refit from the latest accept tests.

    refit_every  steps with one drafter between refits of its curves (0: keep what was fitted offline)
    window       request-steps of one drafter a refit looks at, the latest
    warm_up      refits that must come from fully verified steps before the curves are used; until then everything
                 drafted is verified, for a policy that prunes by wrong confidences would never see them corrected
    """

    refit_every: Annotated[int, Field(ge=0)] = 100
    window: Annotated[int, Field(ge=1)] = 2048
    warm_up: Annotated[int, Field(ge=0)] = 0

    scores: ClassVar[tuple[Score, ...]] = ("drawn_prob", "max_prob", "shifted_prob")

    def __post_init__(self) -> None:
        self.learned: dict[str, Learned] = {}

    @abstractmethod
    def fit(self, seen: Observations, score: Score) -> np.ndarray:
        """[D, G] float64, the curves that the accept tests seen suggest."""

    def calibrate(self, draft: Draft, score: Score) -> Array:
        """[B, D] float64, the chance that each draft is accepted once those before it are."""
        raw = draft.scores[score]
        curves, xp = self._of(draft.drafter.name, score).curves(raw.shape[1]), namespace(raw)
        knots = xp.asarray(knots_of(score), device=raw.device)
        return read_curves(raw, knots, xp.asarray(curves, device=raw.device), xp)

    def warming_up(self, draft: Draft) -> bool:
        """Whether this drafter's curves have not been fitted often enough to prune by."""
        learned = self.learned.get(draft.drafter.name)
        return (0 if learned is None else learned.refits) < self.warm_up

    def observe(self, outcome: Outcome) -> None:
        """Collect the step's accept tests, and refit when it is time."""
        if outcome.draft is None or outcome.draft.drafter.name not in self.learned:
            return
        learned = self.learned[outcome.draft.drafter.name]
        warming = learned.refits < self.warm_up
        if warming and (outcome.num_verify < np.from_dlpack(to_device(outcome.draft.num_drafts, "cpu"))).any():
            return
        raw = np.from_dlpack(to_device(outcome.draft.scores[learned.score], "cpu"))
        learned.seen.add(raw, outcome.num_tested, outcome.num_accepted, self.window)
        learned.steps += 1
        if self.refit_every and learned.steps % self.refit_every == 0:
            learned.values = self.fit(learned.seen, learned.score)
            learned.refits += 1

    def fit_offline(self, drafter: str, score: Score, seen: Observations) -> None:
        """Fit a drafter's curves once from recorded accept tests.

        drafter  its name
        score    the score the curves will read
        seen     accept tests, e.g. of a recorded trace
        """
        learned = self._of(drafter, score)
        learned.values = self.fit(seen, score)
        learned.refits = max(learned.refits + 1, self.warm_up)

    def state_dict(self) -> dict[str, Any]:
        """The curves and the accept tests behind the next refit, by drafter."""
        return {name: learned.state_dict() for name, learned in self.learned.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.learned = {name: Learned.of_state(part) for name, part in state.items()}

    def _of(self, drafter: str, score: Score) -> Learned:
        learned = self.learned.get(drafter)
        if learned is None:
            learned = self.learned[drafter] = Learned(score)
        if learned.score != score:
            raise ValueError(f"the curves of {drafter} read {learned.score}, not {score}")
        return learned


class Learned:
    """The curves of one drafter and what they are learned from.

    score   the score they read
    """

    def __init__(self, score: Score) -> None:
        self.score = score
        self.values: np.ndarray | None = None  # [D, G]
        self.seen = Observations.empty()
        self.steps = 0
        self.refits = 0

    def curves(self, depth: int) -> np.ndarray:
        """[>= depth, G] a curve for every position: beyond the fitted ones the deepest of them, or the prior."""
        known = np.empty((0, len(knots_of(self.score)))) if self.values is None else self.values
        if self.values is None or len(known) < depth:
            last = known[-1] if len(known) else prior_curve(self.score)
            self.values = known = np.concatenate([known, np.repeat(last[None], depth - len(known), axis=0)])
        return known

    def state_dict(self) -> dict[str, Any]:
        """Everything, JSON-able."""
        values = None if self.values is None else self.values.tolist()
        counts = {"steps": self.steps, "refits": self.refits}
        return {"score": self.score, "values": values, "seen": self.seen.state_dict(), **counts}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Learned:
        """The one a `state_dict` was made of."""
        learned = cls(state["score"])
        learned.values = None if state["values"] is None else np.array(state["values"], dtype=np.float64)
        learned.seen = Observations.of_state(state["seen"])
        learned.steps, learned.refits = int(state["steps"]), int(state["refits"])
        return learned
