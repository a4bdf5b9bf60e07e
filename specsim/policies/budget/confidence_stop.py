"""Stop drafting where the drafter is no longer sure: what engines ship as dynamic draft length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Array, Draft, Score, StepCost
from specsim.policies.base import BudgetTiming
from specsim.policies.budget.depth_option import DepthOption
from specsim.policies.stopping import until_failure
from specsim.policies.survival import namespace


@dataclass(frozen=True, kw_only=True)
class ConfidenceStop(DepthOption):
    """Draft until a position's confidence is below a threshold, and verify all that was drafted.

    `keep=false`: the position that fails is not drafted, unless it is the first. Its law may be looked at, its token
    not; this is vLLM's rule, with score=max_prob. `keep=true`: it is drafted and kept, and no further one is, so the
    token drawn may be looked at; with score=drawn_prob this is the rule of assisted generation in transformers.

    threshold  least confidence to go on
    keep       whether the draft that failed is kept
    score      what the drafter says of each position
    depth      most draft tokens a request (None: the drafter's `max_depth`)

    Source: vLLM's confidence_stop; transformers, assistant_confidence_threshold, whose default this is.
    """

    threshold: Annotated[float, Field(ge=0, le=1)] = 0.4
    keep: bool = False
    score: Score = "max_prob"

    @property
    def timing(self) -> BudgetTiming:
        """Whether a position is drafted depends on itself, or on those before it alone."""
        return "stop_after" if self.keep else "first_fall"

    def draft_lengths(self, draft: Draft, confidence: Array, price: Callable[[int], StepCost]) -> Array:
        """[B] int64, draft tokens of each request before it stops."""
        xp = namespace(confidence)
        return until_failure(confidence >= self.threshold, draft.num_drafts, self.keep, xp)

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """[B] int64, every draft of every request."""
        return draft.num_drafts
