"""What makes an arm good: rewards by name, each a ratio of totals.

A mean of per-step ratios would let a step of one request weigh as much as a step of sixty-four, and would price
a token by the step it came in. So a reward is a gain over an exposure, and an arm's mean is the ratio of its sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np

from specsim.core import Outcome

RewardName: TypeAlias = Literal["accepted_fraction", "throughput"]

Tally: TypeAlias = Callable[[Outcome], tuple[float, float]]
"""Gain and exposure of one step."""


def accepted_and_rejected(outcome: Outcome) -> tuple[int, int]:
    """Accept tests passed and failed in one step.

    returns  accepted drafts; requests with a rejected draft

    Pruned drafts, drafts after a rejection and drafts past the end of an output were never tested: they are
    censored, not failed. A request that ended inside the block emitted no token of the target's own, so its
    `num_emitted` does not exceed `num_accepted`, and it saw no rejection.
    """
    accepted = outcome.num_accepted
    rejected = (accepted < outcome.num_verify) & (accepted < outcome.num_emitted)
    return int(accepted.sum()), int(np.count_nonzero(rejected))


def accepted_fraction(outcome: Outcome) -> tuple[float, float]:
    """Accepted drafts over tested drafts: how good the drafts are, whatever they cost.

    Source: FlashSpec's reward, with the tested positions as denominator instead of the drafted ones.
    """
    accepted, rejected = accepted_and_rejected(outcome)
    return float(accepted), float(accepted + rejected)


def throughput(outcome: Outcome) -> tuple[float, float]:
    """Emitted tokens over step seconds: what the drafts are worth.

    Source: the reward in FlashSpec's code, as a ratio of totals.
    """
    return float(outcome.num_emitted.sum()), outcome.seconds.total


REWARDS: dict[RewardName, Tally] = {"accepted_fraction": accepted_fraction, "throughput": throughput}

UNIT_REWARDS: tuple[RewardName, ...] = ("accepted_fraction",)
"""Rewards that lie in [0, 1] by themselves."""


def reward_scale(reward: RewardName, means: Sequence[float], given: float | None) -> float:
    """Reward that counts as 1, for policies that assume rewards in [0, 1].

    means    mean reward of each arm so far
    given    what the user says (None: 1 for a reward that lies in [0, 1] by itself, else the largest mean)
    returns  above 0

    With the largest mean the best arm stands at 1 and the others at their share of it, so that neither the unit
    nor the load matters. Single steps may exceed 1: a rule of thumb, not the premise of a regret bound.
    """
    if given is not None:
        return given
    return 1.0 if reward in UNIT_REWARDS else max(means) or 1.0
