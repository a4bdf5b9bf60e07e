"""Bernoulli arms: every step is one accept test, passed with the arm's chance at the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specsim.errors import InputError
from specsim.study.regret.environment import Prices, Truth
from specsim.study.regret.feedback import Draws

FLASHSPEC_MEANS = (0.3, 0.7, 0.5)
"""Source: FlashSpec, three drafters."""

HIDDEN_MEAN = 0.95
"""What the arm that improves unseen rises to."""


@dataclass(frozen=True)
class BernoulliArms:
    """Arms of known chances; see `Environment`."""

    name: str
    description: str
    arms: tuple[str, ...]
    prices: Prices
    truth: Truth

    def domain(self, step: int) -> str:
        """There are none."""
        return ""

    def draw(self, rngs: list[np.random.Generator], start: int, stop: int) -> Draws:
        """One uniform draw a step, run and arm."""
        uniform = np.stack([rng.random((stop - start, len(self.arms))) for rng in rngs], axis=1)
        accepted = (uniform < self.truth.acceptance[start:stop, None, :]).astype(np.float64)
        return Draws(accepted, np.ones_like(accepted), accepted + 1.0)


def stationary(means: np.ndarray, num_steps: int) -> np.ndarray:
    """Nothing changes."""
    return _pieces(num_steps, means)


def one_swap(means: np.ndarray, num_steps: int) -> np.ndarray:
    """The best and the worst arm change places at T/2."""
    return _pieces(num_steps, means, _swapped(means))


def three_swaps(means: np.ndarray, num_steps: int) -> np.ndarray:
    """Another arm is best after each quarter: the worst one, then one between, then again the first."""
    best, worst = int(means.argmax()), int(means.argmin())
    between = next((arm for arm in range(len(means)) if arm not in (best, worst)), best)
    third = means.copy()
    third[between], third[best] = means[best], means[between]
    return _pieces(num_steps, means, _swapped(means), third, means)


def slow_drift(means: np.ndarray, num_steps: int) -> np.ndarray:
    """The best and the worst arm change places along straight lines from the first step to the last."""
    way = np.linspace(0.0, 1.0, num_steps)[:, None]
    drifting: np.ndarray = means + (_swapped(means) - means) * way
    return drifting


def hidden_improvement(means: np.ndarray, num_steps: int) -> np.ndarray:
    """The worst arm, which hardly anybody pulls by then, rises to .95 at T/2."""
    better = means.copy()
    better[int(means.argmin())] = HIDDEN_MEAN
    return _pieces(num_steps, means, better)


COURSES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "stationary": stationary,
    "one_swap": one_swap,
    "three_swaps": three_swaps,
    "slow_drift": slow_drift,
    "hidden_improvement": hidden_improvement,
}
"""From the means [A] at first and T to the means [T, A] at every step."""


def bernoulli(
    name: str,
    num_steps: int = 10_000,
    means: Sequence[float] = FLASHSPEC_MEANS,
    seconds: float = 0.010,
    switch_seconds: float = 0.002,
) -> BernoulliArms:
    """An environment of Bernoulli arms by name.

    name            a key of COURSES
    num_steps       T
    means           chance of each arm at first
    seconds         a step
    switch_seconds  a switch
    Raises          InputError when one makes no sense
    """
    if name not in COURSES:
        raise InputError(f"unknown environment {name!r}: allowed {', '.join(COURSES)}")
    if num_steps < len(COURSES):
        raise InputError(f"{num_steps} steps are too few: allowed at least {len(COURSES)}")
    if len(means) < 2 or not all(0.0 <= mean <= 1.0 for mean in means):
        raise InputError(f"means {'/'.join(f'{mean:g}' for mean in means)}: allowed two or more numbers in [0, 1]")
    course = COURSES[name]
    acceptance = course(np.array(means, dtype=np.float64), num_steps)
    return BernoulliArms(
        name=name,
        description=(course.__doc__ or "").strip(),
        arms=tuple(f"arm {arm}" for arm in range(len(means))),
        prices=Prices.alike(len(means), seconds, switch_seconds),
        truth=Truth(acceptance, acceptance + 1.0),
    )


def _pieces(num_steps: int, *means: np.ndarray) -> np.ndarray:
    """[T, A] these means, each for an equal part of the steps."""
    bounds = [part * num_steps // len(means) for part in range(len(means) + 1)]
    lengths = np.diff(bounds)
    return np.repeat(np.stack(means), lengths, axis=0)


def _swapped(means: np.ndarray) -> np.ndarray:
    """Best and worst in each other's place."""
    swapped = means.copy()
    best, worst = int(means.argmax()), int(means.argmin())
    swapped[best], swapped[worst] = means[worst], means[best]
    return swapped
