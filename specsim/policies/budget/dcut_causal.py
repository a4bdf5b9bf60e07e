"""D-cut that stops at the first draft not worth its price: exact for autoregressive sampled drafts."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass

from specsim.core import FIXED_POINT, Array, Draft, Score, StepCost
from specsim.policies.base import BudgetTiming
from specsim.policies.budget.goodput_option import GoodputOption
from specsim.policies.ranking import accepted_estimate, best_first, keep_best
from specsim.policies.survival import namespace, survival_scores


@dataclass(frozen=True, kw_only=True)
class DCutCausal(GoodputOption):
    """Admit drafts from the most likely to survive on, and stop at the first that does not raise the utility.

    utility of K = (sum of the K best survivals [+ B]) / envelope at K

    Whether the next draft is admitted depends on nothing but the scores admitted so far and its own, so nothing is
    read that depends on a draft being cut. On a staircase such a stop would halt at every stair's foot; the
    lower convex envelope of the cost has no stairs, and on it the stop finds the best of all budgets.

    numerator   `bonus`: one token a request beside its accepted drafts; `paper`: accepted drafts alone
    score       what the drafter says of each position
    others      see `GoodputOption`

    Source: the admission rule of DSpark (arXiv 2607.05147) on the envelope of D-cut's cost (arXiv 2607.14647).
    """

    numerator: Literal["paper", "bonus"] = "bonus"
    score: Score = "max_prob"

    timing: ClassVar[BudgetTiming] = "first_fall"

    @property
    def prunes_for_goodput(self) -> bool:
        """Whether a plain step's token counts."""
        return self.numerator == "bonus"

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """[B] int64, verified prefix length of each request.

        Raises  ValueError when the engine did not work out the cost's envelope
        """
        if cost.envelope is None:
            raise ValueError("a causal plan needs StepCost.envelope, see specsim.cost.envelope.lower_envelope")
        xp = namespace(confidence)
        device = confidence.device
        scores = survival_scores(confidence, draft.num_drafts, xp)
        negated = best_first(scores, xp)
        budgets = xp.arange(cost.envelope.shape[0], device=device)
        tokens = accepted_estimate(negated, budgets, xp)
        if self.numerator == "bonus":
            tokens = tokens + draft.num_drafts.shape[0] * int(FIXED_POINT)
        utility = xp.astype(tokens, xp.float64) / cost.envelope
        # A position without a draft has a negative score, so the utility falls there at the latest.
        falls = xp.astype(utility[1:] <= utility[:-1], xp.int64)
        stop = xp.argmax(xp.concat([falls, xp.ones((1,), dtype=xp.int64, device=device)]), keepdims=True)
        return keep_best(scores, negated, stop, xp)
