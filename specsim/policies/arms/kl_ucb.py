"""KL-UCB: the arm whose mean could still be the best, by the information distance of Bernoulli laws."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext
from specsim.policies.arms.arm_totals import ArmTotals
from specsim.policies.rewards import REWARDS, UNIT_REWARDS, RewardName

NEWTON_STEPS = 8
"""From a start above the root Newton falls towards it quadratically: eight steps reach 1e-12 everywhere tried."""


def upper_bound(mean: float, pulls: int, information: float) -> float:
    """The largest q with pulls * kl(mean, q) <= information, kl of Bernoulli laws.

    mean         in [0, 1]
    pulls        n, steps of the arm
    information  ln t + c ln ln t
    returns      in [mean, 1]
    """
    if mean >= 1.0:
        return 1.0
    per_pull = information / pulls
    entropy = (mean * math.log(mean) if mean > 0.0 else 0.0) + (1.0 - mean) * math.log(1.0 - mean)
    # Two bounds that lie above the root: Pinsker's, and kl without its term p ln(1 / q).
    success = mean * math.log(mean) if mean > 0.0 else 0.0
    far = 1.0 - (1.0 - mean) * math.exp((success - per_pull) / (1.0 - mean))
    q = min(mean + math.sqrt(per_pull / 2.0), far)
    for _ in range(NEWTON_STEPS):
        if q <= mean or q >= 1.0:
            break
        excess = entropy - mean * math.log(q) - (1.0 - mean) * math.log(1.0 - q) - per_pull
        q -= excess * q * (1.0 - q) / (q - mean)
    return min(max(q, mean), 1.0)


@dataclass(kw_only=True)
class KLUCB:
    """Pull each arm once, then the one with the largest mean that its pulls do not rule out.

    index = max { q : n kl(mean, q) <= ln t + c ln ln t },  kl(p, q) = p ln(p / q) + (1 - p) ln((1 - p) / (1 - q))

    num_arms  drafters of the run
    reward    what makes an arm good, see specsim.policies.rewards
    c         weight of ln ln t; the proof wants 3, its authors recommend 0
    scale     reward that counts as 1, which no arm may exceed; a reward without a unit interval of its own needs it

    Source: Garivier and Cappe 2011 (arXiv 1102.2490), algorithm 1.
    """

    num_arms: Annotated[int, Field(ge=1)]
    reward: RewardName = "accepted_fraction"
    c: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    def __post_init__(self) -> None:
        if self.scale is None and self.reward not in UNIT_REWARDS:
            raise ValueError(
                f"reward {self.reward} needs scale, a value no arm exceeds (KL-UCB assumes rewards in [0, 1])"
            )
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
        information = self.information(sum(self.totals.pulls))
        scale = self.scale or 1.0
        indices = [
            upper_bound(min(mean / scale, 1.0), n, information)
            for mean, n in zip(self.totals.means(), self.totals.pulls, strict=True)
        ]
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

    def information(self, num_steps: int) -> float:
        """What a step may assume: ln t + c ln ln t."""
        log = math.log(num_steps)
        return log + self.c * math.log(log) if self.c and log > 1.0 else log
