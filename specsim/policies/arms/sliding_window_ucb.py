"""Sliding-window UCB: UCB that remembers only the last steps, so that it notices when drafters change places."""

from __future__ import annotations

from collections import deque
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext
from specsim.policies.arms.arm_totals import ArmTotals
from specsim.policies.arms.ucb1 import exploration_bonus
from specsim.policies.rewards import REWARDS, RewardName, reward_scale


@dataclass(kw_only=True)
class SlidingWindowUCB:
    """Pull an arm the window does not hold, else the one with the largest mean + c * sqrt(2 ln min(t, window) / n).

    Means and n count the steps inside the window, never all-time: an arm that was not pulled for long must become
    uncertain again, or a change stays unseen.

    num_arms  drafters of the run
    reward    what makes an arm good, see specsim.policies.rewards
    window    steps remembered
    c         exploration constant; .5477 makes the bonus sqrt(.6 ln t / n), as in the source's experiments
    scale     reward that counts as 1, see specsim.policies.rewards.reward_scale

    Source: Garivier and Moulines 2011 (arXiv 0805.3415), SW-UCB with xi = .6.
    """

    num_arms: Annotated[int, Field(ge=1)]
    reward: RewardName = "accepted_fraction"
    window: Annotated[int, Field(ge=1)] = 1000
    c: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.5477
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    def __post_init__(self) -> None:
        self.totals = ArmTotals(self.num_arms)
        self._steps: deque[tuple[int, float, float]] = deque()  # arm, gain, exposure

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
        """Add one step, and forget the one that leaves the window."""
        gain, exposure = REWARDS[self.reward](outcome)
        self._steps.append((arm, gain, exposure))
        self.totals.add(arm, gain, exposure)
        if len(self._steps) > self.window:
            self._forget(*self._steps.popleft())

    def state_dict(self) -> dict[str, Any]:
        """The steps of the window and their sums."""
        return {"totals": self.totals.state_dict(), "steps": [list(step) for step in self._steps]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`.

        Raises  ValueError when it is of another number of arms, or of a longer window
        """
        if len(state["steps"]) > self.window:
            raise ValueError(f"the window holds {self.window} steps, the state {len(state['steps'])}")
        self.totals.load_state_dict(state["totals"])
        self._steps = deque((int(arm), gain, exposure) for arm, gain, exposure in state["steps"])

    def _forget(self, arm: int, gain: float, exposure: float) -> None:
        totals = self.totals
        if exposure > 0:
            totals.pulls[arm] -= 1
        elif totals.pulls[arm] == totals.untested[arm]:  # else a test that the window still holds struck it out
            totals.pulls[arm] -= 1
            totals.untested[arm] -= 1
        tested = totals.pulls[arm] > totals.untested[arm]
        # Exactly nothing, not what rounding left of it.
        totals.gain[arm] = totals.gain[arm] - gain if tested else 0.0
        totals.exposure[arm] = totals.exposure[arm] - exposure if tested else 0.0
