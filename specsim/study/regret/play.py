"""Plays one drafter policy in one environment, all seeds side by side, and keeps what it lost on the way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.policies.base import DrafterPolicy
from specsim.study.regret.environment import Environment
from specsim.study.regret.feedback import Draws, Feedback
from specsim.study.regret.twins.build import build_twin
from specsim.study.regret.twins.twin import Twin

LUCK_STREAM, POLICY_STREAM = 1, 2
"""What a generator is for: a seed's luck in the environment, and the policy's own draws."""

CHUNK_BYTES = 8 * 2**20
"""Memory of the draws made at a time, about."""

NUM_CHECKPOINTS = 80


@dataclass(frozen=True)
class Play:
    """What S runs of one policy left.

    checkpoints     [C] int64, numbers of steps, T last
    regret          [C, S] float64, expected acceptance lost so far against the best arm of each step
    seconds_regret  [C, S] float64, seconds lost so far: those spent, less those in which the fastest arm of each
                    step would have brought as many tokens
    collected       [S] float64, expected acceptance collected in all T steps
    pulls           [S, A] int64
    switches        [S] int64, steps whose arm was not the one before
    """

    checkpoints: np.ndarray
    regret: np.ndarray
    seconds_regret: np.ndarray
    collected: np.ndarray
    pulls: np.ndarray
    switches: np.ndarray


def checkpoints(num_steps: int) -> np.ndarray:
    """[C] int64, numbers of steps evenly spaced on a logarithmic axis, from 1 to T."""
    return np.unique(np.round(np.geomspace(1, num_steps, NUM_CHECKPOINTS)).astype(np.int64))


def play(policy: DrafterPolicy, environment: Environment, seeds: list[int]) -> Play:
    """Play a fresh policy on every seed.

    A seed's luck is the same whichever policy plays and whichever other seeds take part, so policies are compared on
    common random numbers. The policy's own draws come from one generator for all seeds, because a generator a seed
    would make Thompson sampling several times slower; they change with the list of seeds.
    """
    twin = build_twin(policy, len(seeds))
    return play_twin(twin, environment, seeds)


def play_twin(twin: Twin, environment: Environment, seeds: list[int]) -> Play:
    """Play a fresh twin; see `play`."""
    num_steps, num_arms = environment.truth.acceptance.shape
    luck = [np.random.default_rng([seed, LUCK_STREAM]) for seed in seeds]
    rng = np.random.default_rng([*seeds, POLICY_STREAM])
    size = max(1, CHUNK_BYTES // (3 * 8 * len(seeds) * num_arms))
    clock, ledger = Clock(environment, len(seeds)), Ledger(environment, len(seeds))
    for start in range(0, num_steps, size):
        stop = min(start + size, num_steps)
        draws = environment.draw(luck, start, stop)
        arms = np.empty((stop - start, len(seeds)), np.int64)
        seconds = np.empty((stop - start, len(seeds)))
        for index in range(stop - start):
            domain = environment.domain(start + index)
            arms[index] = pulled = twin.pull(domain, rng)
            feedback = clock.step(pulled, draws, index, domain)
            seconds[index] = feedback.seconds
            twin.update(pulled, feedback)
        ledger.add(start, arms, seconds)
    return ledger.close()


class Clock:
    """Seconds of each run: its steps, and what switching arms adds.

    environment     its prices
    num_runs        S
    """

    def __init__(self, environment: Environment, num_runs: int) -> None:
        prices = environment.prices
        self._seconds, self._switch, self._catch_up = prices.seconds, prices.switch_seconds, prices.catch_up_seconds
        self._first = np.arange(num_runs) * len(prices.seconds)
        self._last: np.ndarray | None = None
        self._tokens = np.zeros(num_runs)
        self._seen = np.zeros(num_runs * len(prices.seconds))  # tokens when each arm last drafted

    def step(self, arms: np.ndarray, draws: Draws, index: int, domain: str) -> Feedback:
        """What one step brought and took.

        arms    [S] int64
        draws   of the chunk
        index   of the step in the chunk
        """
        at = self._first + arms
        accepted, tested = draws.accepted[index], draws.tested[index]
        tokens = draws.tokens[index].reshape(-1)[at]
        seconds = self._seconds[arms]
        if self._last is not None:
            switched = arms != self._last
            missed = self._tokens - self._seen[at]
            seconds = seconds + switched * (self._switch[arms] + missed * self._catch_up[arms])
        self._tokens += tokens
        self._seen[at] = self._tokens
        self._last = arms
        return Feedback(accepted.reshape(-1)[at], tested.reshape(-1)[at], tokens, seconds, accepted, tested, domain)


class Ledger:
    """What each run lost so far, written down at the checkpoints."""

    def __init__(self, environment: Environment, num_runs: int) -> None:
        self._truth, self._prices = environment.truth, environment.prices
        self._marks = checkpoints(len(self._truth.acceptance))
        self._regret = np.zeros((len(self._marks), num_runs))
        self._seconds = np.zeros((len(self._marks), num_runs))
        self._so_far = np.zeros(num_runs), np.zeros(num_runs)
        self._collected = np.zeros(num_runs)
        self._pulls = np.zeros((num_runs, len(self._prices.seconds)), np.int64)
        self._switches = np.zeros(num_runs, np.int64)
        self._last: np.ndarray | None = None

    def add(self, start: int, arms: np.ndarray, seconds: np.ndarray) -> None:
        """Count a chunk of steps.

        start   its first step
        arms    [n, S] int64
        seconds [n, S] float64
        """
        stop = start + len(arms)
        acceptance, tokens = self._truth.acceptance[start:stop], self._truth.tokens[start:stop]
        collected = np.take_along_axis(acceptance, arms, axis=1)
        rate = (tokens / self._prices.seconds).max(axis=1, keepdims=True)
        lost = np.cumsum(acceptance.max(axis=1, keepdims=True) - collected, axis=0)
        late = np.cumsum(seconds - np.take_along_axis(tokens, arms, axis=1) / rate, axis=0)
        marked = (self._marks > start) & (self._marks <= stop)
        within = self._marks[marked] - start - 1
        self._regret[marked] = self._so_far[0] + lost[within]
        self._seconds[marked] = self._so_far[1] + late[within]
        self._so_far = self._so_far[0] + lost[-1], self._so_far[1] + late[-1]
        self._collected += collected.sum(axis=0)
        for arm in range(self._pulls.shape[1]):
            self._pulls[:, arm] += (arms == arm).sum(axis=0)
        before = arms[:1] if self._last is None else self._last[None]
        self._switches += (np.concatenate([before, arms[:-1]]) != arms).sum(axis=0)
        self._last = arms[-1]

    def close(self) -> Play:
        """Everything written down."""
        return Play(self._marks, self._regret, self._seconds, self._collected, self._pulls, self._switches)
