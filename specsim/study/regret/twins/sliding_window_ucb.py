"""Twin of SlidingWindowUCB."""

from __future__ import annotations

import numpy as np

from specsim.policies.arms.sliding_window_ucb import SlidingWindowUCB
from specsim.study.regret.feedback import Feedback
from specsim.study.regret.twins.arm_totals import ArmTotals, reward_scale, unpulled_first
from specsim.study.regret.twins.ring import FIRST, enlarged
from specsim.study.regret.twins.ucb1 import exploration_bonus


class SlidingWindowUCBTwin:
    """Sliding-window UCB in S runs: the window is a ring of [S] columns, which grows up to it."""

    def __init__(self, policy: SlidingWindowUCB, num_runs: int) -> None:
        self.policy = policy
        self.totals = ArmTotals(num_runs, policy.num_arms)
        places = min(policy.window, FIRST)
        self._arms = np.zeros((places, num_runs), np.int64)
        self._gain = np.zeros((places, num_runs))
        self._exposure = np.zeros((places, num_runs))
        self._steps = 0

    def pull(self, domain: str, rng: np.random.Generator) -> np.ndarray:
        """[S] the arm with the largest index."""
        pulls, means = self.totals.pulls, self.totals.means()
        scale = reward_scale(self.policy.reward, means, self.policy.scale)
        steps = np.maximum(pulls.sum(axis=1, keepdims=True), 1.0)
        return unpulled_first(means / scale + exploration_bonus(steps, pulls, self.policy.c), pulls)

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Add one step, and forget the one that leaves the window."""
        gain, exposure = feedback.tally(self.policy.reward)
        slot = self._steps % self.policy.window
        self.totals.add(arms, gain, exposure)
        if self._steps >= self.policy.window:
            self._forget(slot)
        elif slot == len(self._arms):
            rings = (self._arms, self._gain, self._exposure)
            self._arms, self._gain, self._exposure = (enlarged(ring) for ring in rings)
        self._arms[slot], self._gain[slot], self._exposure[slot] = arms, gain, exposure
        self._steps += 1

    def _forget(self, slot: int) -> None:
        totals = self.totals
        at = totals.first + self._arms[slot]
        every = (totals.pulls, totals.untested, totals.gain, totals.exposure)
        pulls, untested, gain, exposure = (sums.reshape(-1) for sums in every)
        struck = self._exposure[slot] == 0.0
        last = struck & (pulls[at] == untested[at])
        pulls[at] -= ~struck | last
        untested[at] -= last
        some = pulls[at] > untested[at]
        gain[at] = np.where(some, gain[at] - self._gain[slot], 0.0)
        exposure[at] = np.where(some, exposure[at] - self._exposure[slot], 0.0)
