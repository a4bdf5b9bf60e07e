"""The DSpark scheduler, as vLLM's adaptive verification ships it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from specsim.core import Score
from specsim.policies.budget.dcut import Ratios, listed
from specsim.policies.budget.dcut_lagged import DCutLagged
from specsim.policies.survival_memory import Start


@dataclass(frozen=True, kw_only=True)
class DSpark(DCutLagged):
    """Any number of drafts, one token more a request in the estimate, the number from confidences two steps old.

    `start=optimistic` is what ships: a new request is taken to accept everything, and is over-verified until its
    second step. `start=corrected` assumes the mean survival seen so far.

    Source: DSpark (arXiv 2607.05147), the production scheduler; vLLM pull requests 47808 and 52228.
    """

    ratios: Annotated[Ratios, BeforeValidator(listed)] = "all"
    numerator: Literal["paper", "bonus"] = "bonus"
    score: Score = "max_prob"
    lag: Annotated[int, Field(ge=1)] = 2
    start: Start = "optimistic"
