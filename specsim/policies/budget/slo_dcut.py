"""D-cut within bounds on latency: the most tokens per second among the budgets that keep them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from specsim.core import FIXED_POINT, Array, Draft, DrafterSpec, StepContext, StepCost
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

    A request that would meet it at some candidate holds the batch to it; one that meets it at none binds nothing. A
    request that would need more than `give_up` tokens at once to be on time has no slack left: it gets no drafts while
    others have some, so that steps are short for those. An engine that does not tell n and t has them taken for 0, so
    that the bound is on each step's seconds a token.

    Candidates are those of `ratios`, and the most drafts that fit in `step_seconds`.

    step_seconds  most seconds of a step (None: no bound)
    tpot_seconds  most mean seconds a token of each request (None: no bound)
    give_up       tokens a request may be behind its bound before it gets no drafts (None: any number)
    ratios        candidate shares of the step to verify
    others        see `DCut`

    Source: the utility is D-cut's (arXiv 2607.14647); the bounds are specsim's.
    """

    ratios: Annotated[tuple[Ratio, ...], Field(min_length=1), BeforeValidator(listed)] = (0.0625, 0.125, 0.25, 0.5, 1.0)
    include_zero: bool = True
    numerator: Literal["paper", "bonus"] = "bonus"
    step_seconds: Bound = None
    tpot_seconds: Bound = None
    give_up: Annotated[float, Field(ge=0)] | None = 32.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step_seconds is None and self.tpot_seconds is None:
            raise ValueError("give step_seconds, tpot_seconds or both; dcut is the policy without bounds")

    def draft_depth(self, context: StepContext, drafter: DrafterSpec) -> int:
        """The deepest at which a step has time for one draft within `step_seconds`; 0 if there is none."""
        most = min(super().draft_depth(context, drafter), drafter.max_depth)
        if self.step_seconds is None or context.price is None:
            return most
        return next((d for d in range(most, 0, -1) if context.price(drafter, d).seconds[1] <= self.step_seconds), 0)

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """[B] int64, verified prefix length of each request; see `BudgetPolicy.plan`."""
        xp = namespace(confidence)
        scores = survival_scores(confidence, draft.num_drafts, xp)
        due, spent = self._past(draft, xp)
        budgets = self._candidates(draft, confidence.shape[1], cost, xp)
        if self.tpot_seconds is not None and self.give_up is not None:
            lost = spent > self.tpot_seconds * (due + self.give_up)
            kept = ~lost | xp.all(lost)
            scores = xp.where(kept, scores, UNDRAFTED)
            left = xp.sum(xp.where(kept, draft.num_drafts, 0))
            budgets = xp.where(budgets < left, budgets, left)
        negated = best_first(scores, xp)
        seconds = xp.take(cost.seconds, budgets, axis=0)
        meets = seconds > 0.0
        if self.tpot_seconds is not None:
            tokens = due + 1.0 + self._accepted(scores, negated, budgets, xp)
            within = spent + seconds[:, None] <= self.tpot_seconds * tokens
            meets = xp.all(within | ~xp.any(within, axis=0), axis=1)
        if self.step_seconds is not None:
            meets = meets & (seconds <= self.step_seconds)
        tokens = accepted_estimate(negated, budgets, xp)
        if self.numerator == "bonus":
            tokens = tokens + draft.num_drafts.shape[0] * int(FIXED_POINT)
        utility = xp.where(meets, xp.astype(tokens, xp.float64) / seconds, -1.0)  # none meets: the first is the least
        best = xp.take(budgets, xp.argmax(utility, keepdims=True), axis=0)
        return keep_best(scores, negated, best, xp)

    def _candidates(self, draft: Draft, columns: int, cost: StepCost, xp: Any) -> Array:
        """[R] int64, ascending, numbers of drafts to choose among."""
        budgets = self.budgets(draft, columns, xp)
        if self.step_seconds is None:
            return budgets
        most = xp.sum(xp.astype(cost.seconds <= self.step_seconds, xp.int64)) - 1
        most = xp.where(most < budgets[-1], most, budgets[-1])
        most = xp.where(most > budgets[0], most, budgets[0])
        return xp.sort(xp.concat([budgets, xp.reshape(most, (1,))]))

    def _past(self, draft: Draft, xp: Any) -> tuple[Array, Array]:
        """[B] float64 each, tokens after each request's first, and seconds since then."""
        device = draft.num_drafts.device
        if draft.num_decoded is None or draft.decode_seconds is None:
            nothing = xp.zeros(draft.num_drafts.shape, dtype=xp.float64, device=device)
            return nothing, nothing
        decoded = xp.asarray(draft.num_decoded, dtype=xp.float64, device=device)
        return decoded, xp.asarray(draft.decode_seconds, dtype=xp.float64, device=device)

    def _accepted(self, scores: Array, negated: Array, budgets: Array, xp: Any) -> Array:
        """[R, B] float64, drafts of each request expected to be accepted at each candidate."""
        fixed = xp.astype(xp.round(xp.where(scores > 0.0, scores, 0.0) * FIXED_POINT), xp.int64)
        positions = xp.arange(scores.shape[0], device=scores.device)[:, None]
        rows = []
        for index in range(budgets.shape[0]):
            kept = keep_best(scores, negated, budgets[index : index + 1], xp)
            rows.append(xp.sum(xp.where(positions < kept, fixed, 0), axis=0))  # integers: the same in any order
        return xp.astype(xp.stack(rows, axis=0), xp.float64) / FIXED_POINT
