"""D-cut with a budget from the past: this step's ranking, an earlier step's number."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Array, Draft, Outcome, StepCost
from specsim.policies.base import BudgetTiming
from specsim.policies.budget.dcut import BestBudget
from specsim.policies.ranking import best_first, keep_best
from specsim.policies.survival import UNDRAFTED, namespace, survival_scores
from specsim.policies.survival_memory import Start, SurvivalMemory


@dataclass(frozen=True, kw_only=True)
class DCutLagged(BestBudget):
    """Choose the number of drafts as D-cut does, but from each request's survival `lag` steps ago.

    A budget that does not read this step's scores cannot look ahead, so autoregressive sampled drafts stay exact
    whatever the cost curve, staircases included.

    lag     steps between a survival curve and the budget chosen from it
    start   what is assumed of a request younger than that, see `survival_memory.Start`
    others  see `BestBudget`

    Source: D-cut (arXiv 2607.14647), appendix B, the causal budget.
    """

    lag: Annotated[int, Field(ge=1)] = 1
    start: Start = "corrected"

    timing: ClassVar[BudgetTiming] = "past"

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", SurvivalMemory(self.lag, self.start))

    memory: ClassVar[SurvivalMemory]  # an attribute, not an option: it is no field

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """[B] int64, verified prefix length of each request; see `BudgetPolicy.plan`."""
        xp = namespace(confidence)
        columns = confidence.shape[1]
        scores = survival_scores(confidence, draft.num_drafts, xp)
        self.memory.note(draft, scores)
        earlier = xp.asarray(self.memory.recall(draft, columns), device=confidence.device)
        earlier = xp.where(scores > UNDRAFTED, earlier, UNDRAFTED)
        budget = self.best_budget(best_first(earlier, xp), draft, columns, cost, xp)
        return keep_best(scores, best_first(scores, xp), budget, xp)

    def observe(self, outcome: Outcome) -> None:
        """This step's survival becomes the past."""
        self.memory.commit()

    def state_dict(self) -> dict[str, Any]:
        """The survival remembered."""
        return self.memory.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.memory.load_state_dict(state)
