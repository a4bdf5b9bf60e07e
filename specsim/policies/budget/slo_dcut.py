"""D-cut within bounds on latency: the most tokens per second among the budgets that keep them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from specsim.core import FIXED_POINT, Array, Draft, StepCost
from specsim.policies.budget.dcut import DCut, listed
from specsim.policies.budget.verify_ratio import Ratio
from specsim.policies.ranking import accepted_estimate, best_first, keep_best
from specsim.policies.survival import UNDRAFTED, namespace, survival_scores

Bound = Annotated[float, Field(gt=0, allow_inf_nan=False)] | None


@dataclass(frozen=True, kw_only=True)
class SloDCut(DCut):
    """Keep the number of drafts with the best utility among those that meet the bounds, or the least if none does.

    A step of K drafts meets the bound on steps when it takes no longer. It meets the bound on a request's mean seconds
    a token (TPOT) when, with n tokens after its first, t seconds since then, and a(K) drafts of it expected to be
    accepted,

    t + seconds at K <= tpot_seconds (n + 1 + a(K)).

    A request that would meet it at some candidate holds the batch to it. One that meets it at none has no slack: it
    holds the batch to nothing and, with `drop_late`, gets no draft, so that the others' steps are short; unless nobody
    has slack, when tokens per second are all that is left to look after. An engine that does not tell n and t has them
    taken for 0, so that the bound is on each step's seconds a token.

    step_seconds  most seconds of a step (None: no bound)
    tpot_seconds  most mean seconds a token of each request (None: no bound)
    drop_late     whether requests without slack get no drafts while others have some
    ratios        candidate shares of the step to verify
    others        see `DCut`

    Source: the utility is D-cut's (arXiv 2607.14647); the bounds are specsim's.
    """

    ratios: Annotated[
        tuple[Ratio, ...], Field(min_length=1), BeforeValidator(listed)
    ] = (0.25, 0.5, 0.75, 1.0)  # fmt: skip
    include_zero: bool = True
    numerator: Literal["paper", "bonus"] = "bonus"
    step_seconds: Bound = None
    tpot_seconds: Bound = None
    drop_late: bool = True

    def __post_init__(self) -> None:
        if self.step_seconds is None and self.tpot_seconds is None:
            raise ValueError("give step_seconds, tpot_seconds or both; dcut is the policy without bounds")

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """[B] int64, verified prefix length of each request; see `BudgetPolicy.plan`."""
        xp = namespace(confidence)
        scores = survival_scores(confidence, draft.num_drafts, xp)
        negated = best_first(scores, xp)
        budgets = self.budgets(draft, confidence.shape[1], xp)
        meets = xp.ones(budgets.shape, dtype=xp.bool, device=confidence.device)
        if self.tpot_seconds is not None:
            within = self._within(draft, scores, negated, budgets, cost, xp)
            slack = xp.any(within, axis=0)
            if self.drop_late:
                kept = slack | ~xp.any(slack)
                scores = xp.where(kept, scores, UNDRAFTED)
                negated = best_first(scores, xp)
                left = xp.sum(xp.where(kept, draft.num_drafts, 0))
                budgets = xp.where(budgets < left, budgets, left)
                within = self._within(draft, scores, negated, budgets, cost, xp)
            meets = xp.all(within | ~slack, axis=1)
        seconds = xp.take(cost.seconds, budgets, axis=0)
        if self.step_seconds is not None:
            meets = meets & (seconds <= self.step_seconds)
        tokens = accepted_estimate(negated, budgets, xp)
        if self.numerator == "bonus":
            tokens = tokens + draft.num_drafts.shape[0] * int(FIXED_POINT)
        utility = xp.where(meets, xp.astype(tokens, xp.float64) / seconds, -1.0)  # none meets: the first is the least
        best = xp.take(budgets, xp.argmax(utility, keepdims=True), axis=0)
        return keep_best(scores, negated, best, xp)

    def _within(self, draft: Draft, scores: Array, negated: Array, budgets: Array, cost: StepCost, xp: Any) -> Array:
        """[R, B] bool, whether each request's mean stays within the bound at each candidate."""
        device = scores.device
        fixed = xp.astype(xp.round(xp.where(scores > 0.0, scores, 0.0) * FIXED_POINT), xp.int64)
        positions = xp.arange(scores.shape[0], device=device)[:, None]
        due, spent = 1.0, 0.0
        if draft.num_decoded is not None and draft.decode_seconds is not None:
            due = 1.0 + xp.asarray(draft.num_decoded, dtype=xp.float64, device=device)
            spent = xp.asarray(draft.decode_seconds, dtype=xp.float64, device=device)
        rows = []
        for index in range(budgets.shape[0]):
            budget = budgets[index : index + 1]
            kept = keep_best(scores, negated, budget, xp)
            accepted = xp.sum(xp.where(positions < kept, fixed, 0), axis=0)  # integers: the same in any order
            allowed = self.tpot_seconds * (due + xp.astype(accepted, xp.float64) / FIXED_POINT) - spent
            rows.append(xp.take(cost.seconds, budget, axis=0) <= allowed)
        return xp.stack(rows, axis=0)
