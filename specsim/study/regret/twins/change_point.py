"""Twin of ChangePoint."""

from __future__ import annotations

import numpy as np

from specsim.policies.arms.change_point import ChangePoint, lags
from specsim.policies.arms.thompson_beta import ThompsonBeta
from specsim.policies.arms.thompson_gaussian import ThompsonGaussian
from specsim.policies.arms.ucb1 import UCB1
from specsim.policies.rewards import UNIT_REWARDS
from specsim.study.regret.feedback import Feedback
from specsim.study.regret.twins.arm_totals import ratio, reward_scale
from specsim.study.regret.twins.ring import FIRST, enlarged
from specsim.study.regret.twins.thompson_beta import ThompsonBetaTwin
from specsim.study.regret.twins.thompson_gaussian import ThompsonGaussianTwin
from specsim.study.regret.twins.ucb1 import UCB1Twin


class ArmHistories:
    """Twin of ArmHistory: running sums after each of the last pulls, a growing ring for every run and arm.

    num_runs, num_arms  S and A
    window              most pulls after a change
    """

    def __init__(self, num_runs: int, num_arms: int, window: int) -> None:
        self.window = window
        self.ring = min(window + 1, FIRST)
        self.lags = np.array(lags(window))
        self.pulls = np.zeros(num_runs * num_arms, np.int64)
        self.gain = np.zeros((num_runs * num_arms, self.ring))
        self.exposure = np.zeros((num_runs * num_arms, self.ring))
        self.square = np.zeros((num_runs * num_arms, self.ring))
        self.shape = (num_runs, num_arms)

    def add(self, at: np.ndarray, gain: np.ndarray, exposure: np.ndarray) -> None:
        """Count one pull of each run, at its flat place [S]."""
        if self.ring <= self.window and self.pulls[at].max() + 1 == self.ring:
            rings = (self.gain, self.exposure, self.square)
            self.gain, self.exposure, self.square = (enlarged(sums, axis=1) for sums in rings)
            self.ring = self.gain.shape[1]
        old, new = self.pulls[at] % self.ring, (self.pulls[at] + 1) % self.ring
        self.gain[at, new] = self.gain[at, old] + gain
        self.exposure[at, new] = self.exposure[at, old] + exposure
        self.square[at, new] = self.square[at, old] + exposure * exposure
        self.pulls[at] += 1

    def means(self) -> np.ndarray:
        """[S, A] ratio of totals."""
        every, now = np.arange(len(self.pulls)), self.pulls % self.ring
        return ratio(self.gain[every, now], self.exposure[every, now]).reshape(self.shape)

    def evidence(self, at: np.ndarray, scale: float | np.ndarray) -> np.ndarray:
        """[S] largest log-likelihood ratio over all lags, at each run's flat place."""
        place, n, lag = at[:, None], self.pulls[at][:, None], self.lags
        now, then = n % self.ring, (n - lag) % self.ring
        gain_before, exposure_before = self.gain[place, then], self.exposure[place, then]
        exposure_after = self.exposure[place, now] - exposure_before
        square_before = self.square[place, then]
        with np.errstate(divide="ignore", invalid="ignore"):
            before = exposure_before * exposure_before / square_before
            after = exposure_after * exposure_after / (self.square[place, now] - square_before)
            mean_after = (self.gain[place, now] - gain_before) / exposure_after
            jump = (mean_after - gain_before / exposure_before) / scale
            ratios = 2.0 * after * before / (after + before) * jump * jump
        known = (lag < n) & (exposure_before > 0.0) & (exposure_after > 0.0)
        most: np.ndarray = np.where(known, ratios, 0.0).max(axis=1)
        return most

    def reset(self, runs: np.ndarray) -> None:
        """Forget everything of some runs."""
        for sums in (self.pulls, self.gain, self.exposure, self.square):
            sums.reshape(*self.shape, -1)[runs] = 0


class ChangePointTwin:
    """Change-point restart in S runs."""

    def __init__(self, policy: ChangePoint, num_runs: int) -> None:
        self.policy = policy
        self.base = base_twin(policy, num_runs)
        self.num_restarts = np.zeros(num_runs, np.int64)
        self._since = np.zeros(num_runs, np.int64)
        self._histories = ArmHistories(num_runs, policy.num_arms, policy.window)
        self._first = np.arange(num_runs) * policy.num_arms

    def pull(self, domain: str, rng: np.random.Generator) -> np.ndarray:
        """[S] the arm whose turn it is to be explored, else the base policy's."""
        if not self.policy.period:
            return self.base.pull(domain, rng)
        arms = self._since % self.policy.period
        others = np.flatnonzero(arms >= self.policy.num_arms)
        if len(others):
            arms[others] = self.base.pull(domain, rng, others)
        return arms

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Teach the base policy, then restart the runs whose arm has changed."""
        self.base.update(arms, feedback)
        self._since += 1
        gain, exposure = feedback.tally(self.policy.reward)
        tested = exposure > 0.0
        at = (self._first + arms)[tested]
        if not len(at):
            return
        self._histories.add(at, gain[tested], exposure[tested])
        limit = np.log(3.0 * self._histories.pulls[at] ** 1.5 / self.policy.false_alarm)
        scale = self._scale()
        changed = np.zeros(len(arms), bool)
        changed[tested] = self._histories.evidence(at, scale if isinstance(scale, float) else scale[tested]) > limit
        if changed.any():
            self.num_restarts += changed
            self._since[changed] = 0
            self.base.reset(changed)
            self._histories.reset(changed)

    def _scale(self) -> float | np.ndarray:
        if self.policy.scale is not None or self.policy.reward in UNIT_REWARDS:
            return self.policy.scale or 1.0  # the means need not be known
        return reward_scale(self.policy.reward, self._histories.means(), None)


def base_twin(policy: ChangePoint, num_runs: int) -> ThompsonBetaTwin | ThompsonGaussianTwin | UCB1Twin:
    """The twin of a change-point policy's base."""
    base = policy.build_base()
    if isinstance(base, ThompsonBeta):
        return ThompsonBetaTwin(base, num_runs)
    if isinstance(base, ThompsonGaussian):
        return ThompsonGaussianTwin(base, num_runs)
    assert isinstance(base, UCB1)
    return UCB1Twin(base, num_runs)
