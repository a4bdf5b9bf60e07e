"""Discounted UCB: UCB whose past fades, so that it notices when drafters change places."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext
from specsim.policies.arms.discounted_totals import DiscountedTotals
from specsim.policies.arms.ucb1 import exploration_bonus
from specsim.policies.rewards import REWARDS, RewardName, reward_scale


@dataclass(kw_only=True)
class DiscountedUCB:
    """Pull each arm once, then the one with the largest mean + c * sqrt(2 ln t / n), t and n faded as well.

    num_arms  drafters of the run
    reward    what makes an arm good, see specsim.policies.rewards
    discount  factor by which every arm's past fades at every step; .998 remembers about 500 steps
    c         exploration constant; .5477 makes the bonus sqrt(.6 ln t / n), as in the source's experiments
    scale     reward that counts as 1, see specsim.policies.rewards.reward_scale

    Source: Kocsis and Szepesvari 2006; Garivier and Moulines 2011 (arXiv 0805.3415), D-UCB with xi = .6.
    """

    num_arms: Annotated[int, Field(ge=1)]
    reward: RewardName = "accepted_fraction"
    discount: Annotated[float, Field(gt=0, le=1)] = 0.998
    c: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.5477
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    def __post_init__(self) -> None:
        self.totals = DiscountedTotals(self.num_arms, self.discount)

    @property
    def arms(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.num_arms))

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """The arm with the largest index, the first of equals."""
        unpulled = self.totals.unpulled()
        if unpulled is not None:
            return unpulled
        weight, means = self.totals.weight, self.totals.means()
        scale, steps = reward_scale(self.reward, means, self.scale), sum(weight)
        indices = [mean / scale + exploration_bonus(steps, n, self.c) for mean, n in zip(means, weight, strict=True)]
        return indices.index(max(indices))

    def update(self, arm: int, outcome: Outcome) -> None:
        """Fade every arm's sums and add one step to its arm's."""
        self.totals.add(arm, *REWARDS[self.reward](outcome))

    def state_dict(self) -> dict[str, Any]:
        """The faded sums."""
        return self.totals.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.totals.load_state_dict(state)
