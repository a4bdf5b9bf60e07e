"""Where arms live: how good each one truly is at every step, and what it brings by chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from specsim.errors import InputError
from specsim.study.regret.feedback import Draws

SHORTEST, LONGEST = 1e-9, 1e9
"""Seconds of a step."""


@dataclass(frozen=True)
class Prices:
    """What a step takes.

    seconds             [A] float64, a step with each arm, drafting and verifying
    switch_seconds      [A] float64, switching to each arm, whatever it missed
    catch_up_seconds    [A] float64, switching to each arm, for every token it missed
    """

    seconds: np.ndarray
    switch_seconds: np.ndarray
    catch_up_seconds: np.ndarray

    @classmethod
    def alike(cls, num_arms: int, seconds: float, switch_seconds: float) -> Prices:
        """The same for every arm, whatever it missed.

        Raises  InputError when one is no duration that sums of float64 keep apart
        """
        if not (SHORTEST <= seconds <= LONGEST and 0.0 <= switch_seconds <= LONGEST):
            raise InputError(
                f"a step of {seconds:g} s and a switch of {switch_seconds:g} s: allowed {SHORTEST:g} and 0 "
                f"to {LONGEST:g} s"
            )
        every = np.ones(num_arms)
        return cls(every * seconds, every * switch_seconds, every * 0.0)


@dataclass(frozen=True)
class Truth:
    """How good the arms are, T steps long.

    acceptance  [T, A] float64, expected accepted fraction of tested drafts
    tokens      [T, A] float64, expected tokens a step
    """

    acceptance: np.ndarray
    tokens: np.ndarray

    @property
    def changes(self) -> list[int]:
        """Steps from which on the arms are not what they were, in order."""
        moved = (self.acceptance[1:] != self.acceptance[:-1]).any(axis=1)
        return [int(step) + 1 for step in np.flatnonzero(moved)]


class Environment(Protocol):
    """Arms over time.

    name        in tables
    description one sentence
    arms        their names
    prices      seconds
    truth       what no policy knows
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def arms(self) -> tuple[str, ...]: ...

    @property
    def prices(self) -> Prices: ...

    @property
    def truth(self) -> Truth: ...

    def domain(self, step: int) -> str:
        """Domain of a step's requests, empty when there are none."""
        ...

    def draw(self, rngs: list[np.random.Generator], start: int, stop: int) -> Draws:
        """What the arms would bring from one step to another.

        rngs    one a run, so that a seed's luck does not depend on which others take part
        """
        ...
