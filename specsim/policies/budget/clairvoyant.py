"""The bound: what a step could bring if one knew which drafts the target accepts."""

from __future__ import annotations

from typing import ClassVar

from pydantic.dataclasses import dataclass

from specsim.core import Array, Draft, StepCost
from specsim.policies.base import BudgetTiming
from specsim.policies.budget.depth_option import DepthOption
from specsim.policies.ranking import best_first, keep_best
from specsim.policies.survival import UNDRAFTED, namespace


@dataclass(frozen=True, kw_only=True)
class Clairvoyant(DepthOption):
    """Verify only drafts that will be accepted, as many as maximise emitted tokens over the step's seconds.

    depth  draft tokens a request (None: the drafter's `max_depth`)

    utility of K = (B + K) / seconds of the step at K, for K from 0 to all acceptable drafts

    The best of each step by itself, given its drafter and depth: it bounds budgets, not arms or depths.
    """

    score: ClassVar[None] = None
    timing: ClassVar[BudgetTiming] = "argmax"
    clairvoyant: ClassVar[bool] = True

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """[B] int64, verified prefix length of each request.

        Raises  ValueError when the engine does not tell what would be accepted
        """
        if draft.num_acceptable is None:
            raise ValueError("a clairvoyant plan needs Draft.num_acceptable, which only a simulator knows")
        xp = namespace(draft.num_drafts)
        batch, depth = confidence.shape
        device = draft.num_drafts.device
        positions = xp.arange(depth, device=device)[:, None]
        acceptable = (positions < draft.num_acceptable) & (positions < draft.num_drafts)
        scores = xp.where(acceptable, xp.ones((), dtype=xp.float64, device=device), UNDRAFTED)
        budgets = xp.arange(batch * depth + 1, device=device)
        total = xp.sum(xp.astype(acceptable, xp.int64))
        # Beyond what is acceptable a budget brings no token more: it stands for all of it, at that price.
        budgets = xp.where(budgets < total, budgets, total)
        utility = xp.astype(budgets + batch, xp.float64) / xp.take(cost.seconds, budgets, axis=0)
        best = xp.take(budgets, xp.argmax(utility, keepdims=True), axis=0)
        return keep_best(scores, best_first(scores, xp), best, xp)
