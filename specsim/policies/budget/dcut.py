"""D-cut: verify the drafts most likely to survive, as many as pay for themselves."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from specsim.core import FIXED_POINT, Array, Draft, Score, StepCost
from specsim.policies.base import BudgetTiming
from specsim.policies.budget.depth_option import DepthOption
from specsim.policies.budget.goodput_option import GoodputOption
from specsim.policies.budget.verify_ratio import Ratio, RatioCount, as_fractions, drafts_at_ratio
from specsim.policies.ranking import accepted_estimate, best_first, keep_best
from specsim.policies.survival import namespace, survival_scores

Ratios = Annotated[tuple[Ratio, ...], Field(min_length=1)] | Literal["all"]


def listed(value: Any) -> Any:
    """A list as written in a controller's text, `.25/.5`; a single number is a list of one."""
    if isinstance(value, str) and value != "all":
        return value.split("/")
    return (value,) if isinstance(value, int | float) else value


@dataclass(frozen=True, kw_only=True)
class BestBudget(DepthOption):
    """Options of a number of drafts with the best estimated utility, and how it is found.

    utility of K = (sum of the K best survivals [+ B]) / seconds of the step at K

    ratios        candidate shares of the step to verify, or `all` for every number of drafts, 0 included
    include_zero  whether verifying nothing is a candidate beside `ratios`
    count         what a ratio is of, see `RatioCount`
    numerator     `paper`: accepted drafts; `bonus`: one more token a request, as the DSpark scheduler counts
    score         what the drafter says of each position
    depth         draft tokens a request (None: the drafter's `max_depth`)

    Source: D-cut (arXiv 2607.14647), equations of the utility and of the candidate ratios; defaults are the paper's.
    """

    ratios: Annotated[Ratios, BeforeValidator(listed)] = (0.25, 0.5, 0.75, 1.0)
    include_zero: bool = False
    count: RatioCount = "paper"
    numerator: Literal["paper", "bonus"] = "paper"
    score: Score = "drawn_prob"

    @cached_property
    def fractions(self) -> np.ndarray:
        """[2, R] int64, the ratios from smallest to largest, so that of equal utilities the cheapest wins."""
        return as_fractions(tuple(sorted(self.ratios)) if self.ratios != "all" else ())

    def budgets(self, draft: Draft, columns: int, xp: Any) -> Array:
        """Numbers of drafts to choose among.

        columns  draft positions D of the step
        returns  [R] int64, ascending; with `all`, numbers beyond what was drafted stand for all of it
        """
        device = draft.num_drafts.device
        if self.ratios == "all":
            every = xp.arange(draft.num_drafts.shape[0] * columns + 1, device=device)
            total = xp.sum(draft.num_drafts)
            return xp.where(every < total, every, total)
        budgets = drafts_at_ratio(xp.asarray(self.fractions, device=device), draft.num_drafts, self.count, xp)
        if self.include_zero:
            budgets = xp.concat([xp.zeros((1,), dtype=xp.int64, device=device), budgets])
        return budgets

    def best_budget(self, negated: Array, draft: Draft, columns: int, cost: StepCost, xp: Any) -> Array:
        """Number of drafts with the best utility.

        negated  [D * B] float64, see `ranking.best_first`
        columns  draft positions D of the step
        returns  [1] int64
        """
        budgets = self.budgets(draft, columns, xp)
        tokens = accepted_estimate(negated, budgets, xp)
        if self.numerator == "bonus":
            tokens = tokens + draft.num_drafts.shape[0] * int(FIXED_POINT)
        utility = xp.astype(tokens, xp.float64) / xp.take(cost.seconds, budgets, axis=0)
        return xp.take(budgets, xp.argmax(utility, keepdims=True), axis=0)


@dataclass(frozen=True, kw_only=True)
class DCut(GoodputOption, BestBudget):
    """Rank all drafts of the batch by survival and keep the number with the best estimated utility.

    ratios, include_zero, count, numerator, score  see `BestBudget`
    depth, alpha, prior                            see `GoodputOption`

    Source: D-cut (arXiv 2607.14647), equations of the utility and of the candidate ratios; defaults are the paper's.
    """

    timing: ClassVar[BudgetTiming] = "argmax"

    @property
    def prunes_for_goodput(self) -> bool:
        """Whether a plain step's token counts, and 0 is a candidate."""
        return self.numerator == "bonus" and (self.ratios == "all" or self.include_zero)

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """[B] int64, verified prefix length of each request; see `BudgetPolicy.plan`."""
        xp = namespace(confidence)
        scores = survival_scores(confidence, draft.num_drafts, xp)
        negated = best_first(scores, xp)
        best = self.best_budget(negated, draft, confidence.shape[1], cost, xp)
        return keep_best(scores, negated, best, xp)
