"""Change-point restart: a stationary policy that forgets everything once an arm no longer is what it was."""

from __future__ import annotations

import math
from collections import deque
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Outcome, StepContext
from specsim.policies.arms.thompson_beta import ThompsonBeta
from specsim.policies.arms.thompson_gaussian import ThompsonGaussian
from specsim.policies.arms.ucb1 import UCB1
from specsim.policies.base import DrafterPolicy
from specsim.policies.rewards import REWARDS, RewardName, reward_scale

Base: TypeAlias = Literal["ucb1", "thompson_beta", "thompson_gaussian"]

LAG_GROWTH = 1.5


def lags(window: int) -> list[int]:
    """Pulls after a possible change: 1, 2, 3, 4, 6, 9 and so on up to the window.

    A change between two of them is found at the nearer one, at less than a fifth of the evidence lost.
    """
    found = [1]
    while (following := max(found[-1] + 1, int(found[-1] * LAG_GROWTH))) <= window:
        found.append(following)
    return found


def threshold(pulls: int, false_alarm: float) -> float:
    """Evidence that counts as a change: ln(3 n^1.5 / false_alarm).

    Source: Besson, Kaufmann, Maillard, Seznec 2022 (arXiv 1902.01575), section 3.
    """
    return math.log(3.0 * pulls**1.5 / false_alarm)


class ArmHistory:
    """Running sums of one arm after each of its last pulls that tested something, and whether they hold a change.

    window  most pulls after a change
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.pulls = 0
        self.sums: deque[tuple[float, ...]] = deque([(0.0, 0.0, 0.0)], maxlen=window + 1)  # gain, exposure, its square

    def add(self, gain: float, exposure: float) -> None:
        """Count one pull."""
        total_gain, total_exposure, total_square = self.sums[-1]
        self.sums.append((total_gain + gain, total_exposure + exposure, total_square + exposure * exposure))
        self.pulls += 1

    def evidence(self, scale: float) -> float:
        """Largest log-likelihood ratio of `the mean changed k pulls ago` over all lags k.

        2 a b / (a + b) * (mean after - mean before)^2, for means that are ratios of totals over `scale`, a and b pulls
        after and before; every law on [0, 1] is at least as narrow as the normal law of variance 1/4 it assumes.

        Pulls count as equally large ones of the same spread would: (sum of exposure)^2 / (sum of its squares). One that
        tested much does not make the others count less than they do.
        """
        gain, exposure, square = self.sums[-1]
        most = 0.0
        for lag in lags(self.window):
            if lag >= self.pulls:
                break
            gain_before, exposure_before, square_before = self.sums[-1 - lag]
            exposure_after = exposure - exposure_before
            if exposure_before > 0.0 and exposure_after > 0.0:
                before = exposure_before * exposure_before / square_before
                after = exposure_after * exposure_after / (square - square_before)
                jump = ((gain - gain_before) / exposure_after - gain_before / exposure_before) / scale
                most = max(most, 2.0 * after * before / (after + before) * jump * jump)
        return most


@dataclass(kw_only=True)
class ChangePoint:
    """A stationary policy with forced exploration, restarted when the pulled arm's mean has changed.

    num_arms     drafters of the run
    base         the stationary policy
    reward       what makes an arm good; `thompson_beta` knows accepted_fraction only
    false_alarm  chance of a restart without a change, per arm and restart
    explore      share of steps that pull the arms in turn, so that a change of an idle arm is seen
    window       most pulls after a change that are looked at
    scale        reward that counts as 1, see specsim.policies.rewards.reward_scale

    Source: GLR-klUCB with global restarts (arXiv 1902.01575), its test limited to a window as in Lai 1995.
    """

    num_arms: Annotated[int, Field(ge=1)]
    base: Base = "thompson_beta"
    reward: RewardName = "accepted_fraction"
    false_alarm: Annotated[float, Field(gt=0, lt=1)] = 0.1
    explore: Annotated[float, Field(ge=0, le=1)] = 0.05
    window: Annotated[int, Field(ge=1, le=2**31 - 1)] = 500
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    def __post_init__(self) -> None:
        if self.base == "thompson_beta" and self.reward != "accepted_fraction":
            raise ValueError(
                f"base thompson_beta counts accept tests, it has no reward {self.reward}: use thompson_gaussian or ucb1"
            )
        self.num_restarts = 0
        self._restart()

    @property
    def arms(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.num_arms))

    @property
    def period(self) -> int | None:
        """Steps between the starts of two exploration rounds (None: there are none)."""
        return math.ceil(self.num_arms / self.explore) if self.explore else None

    def pull(self, context: StepContext, rng: np.random.Generator) -> int:
        """The arm whose turn it is to be explored, else the base policy's."""
        turn = self._since % self.period if self.period else self.num_arms
        return turn if turn < self.num_arms else self._policy.pull(context, rng)

    def update(self, arm: int, outcome: Outcome) -> None:
        """Teach the base policy, then restart it if the arm has changed."""
        self._policy.update(arm, outcome)
        self._since += 1
        gain, exposure = REWARDS[self.reward](outcome)
        if exposure == 0.0:
            return  # nothing was tested, so nothing is known to have changed
        history = self._histories[arm]
        history.add(gain, exposure)
        if history.evidence(self._scale()) > threshold(history.pulls, self.false_alarm):
            self.num_restarts += 1
            self._restart()

    def state_dict(self) -> dict[str, Any]:
        """The base policy's state and each arm's running sums."""
        return {
            "policy": self._policy.state_dict(),
            "since": self._since,
            "num_restarts": self.num_restarts,
            "histories": [
                {"pulls": history.pulls, "sums": [list(sums) for sums in history.sums]} for history in self._histories
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`.

        Raises  ValueError when it is of another number of arms
        """
        if len(state["histories"]) != self.num_arms:
            raise ValueError(f"change-point histories need {self.num_arms} arms, got {len(state['histories'])}")
        self._restart()
        self._policy.load_state_dict(state["policy"])
        self._since, self.num_restarts = int(state["since"]), int(state["num_restarts"])
        for history, saved in zip(self._histories, state["histories"], strict=True):
            history.pulls = int(saved["pulls"])
            history.sums.clear()
            history.sums.extend(tuple(sums) for sums in saved["sums"])

    def _restart(self) -> None:
        self._policy = self.build_base()
        self._since = 0
        self._histories = [ArmHistory(self.window) for _ in range(self.num_arms)]

    def build_base(self) -> DrafterPolicy:
        """The base policy, fresh."""
        if self.base == "thompson_beta":
            return ThompsonBeta(num_arms=self.num_arms)
        if self.base == "thompson_gaussian":
            return ThompsonGaussian(num_arms=self.num_arms, reward=self.reward, scale=self.scale)
        return UCB1(num_arms=self.num_arms, reward=self.reward, scale=self.scale)

    def _scale(self) -> float:
        sums = (history.sums[-1] for history in self._histories)
        return reward_scale(
            self.reward, [gain / exposure if exposure else 0.0 for gain, exposure, _ in sums], self.scale
        )
