"""UCB1: the arm whose mean could still be the best."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext
from specsim.policies.arms.arm_totals import ArmTotals
from specsim.policies.rewards import REWARDS, RewardName, reward_scale


def exploration_bonus(num_steps: float, pulls: float, c: float = 1.0) -> float:
    """How far above its mean an arm might lie: c * sqrt(2 ln t / n).

    num_steps  t, steps so far over all arms
    pulls      n, steps of this arm that tested something; both may be faded or windowed counts, see `ArmTotals`
    """
    return c * math.sqrt(2.0 * math.log(num_steps) / pulls)


@dataclass(kw_only=True)
class UCB1:
    """Pull each arm once, then the one with the largest mean + c * sqrt(2 ln t / n).

    num_arms  drafters of the run
    reward    what makes an arm good, see specsim.policies.rewards
    c         exploration constant; 1 is the textbook's and FlashSpec's
    scale     reward that counts as 1, see specsim.policies.rewards.reward_scale

    Source: Auer, Cesa-Bianchi, Fischer 2002, figure 1; FlashSpec.
    """

    num_arms: Annotated[int, Field(ge=1)]
    reward: RewardName = "accepted_fraction"
    c: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    def __post_init__(self) -> None:
        self.totals = ArmTotals(self.num_arms)

    @property
    def arms(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.num_arms))

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """The arm with the largest index, the first of equals."""
        unpulled = self.totals.unpulled()
        if unpulled is not None:
            return unpulled
        pulls, means = self.totals.pulls, self.totals.means()
        scale, num_steps = reward_scale(self.reward, means, self.scale), sum(pulls)
        indices = [mean / scale + exploration_bonus(num_steps, n, self.c) for mean, n in zip(means, pulls, strict=True)]
        return indices.index(max(indices))

    def update(self, arm: int, outcome: Outcome) -> None:
        """Add one step to its arm's sums."""
        self.totals.add(arm, *REWARDS[self.reward](outcome))

    def state_dict(self) -> dict[str, Any]:
        """The sums."""
        return self.totals.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.totals.load_state_dict(state)
