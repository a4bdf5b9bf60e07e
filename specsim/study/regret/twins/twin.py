"""What every twin can do."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from specsim.study.regret.feedback import Feedback


class Twin(Protocol):
    """One drafter policy in S runs."""

    def pull(self, domain: str, rng: np.random.Generator) -> np.ndarray:
        """[S] int64, the arm of each run.

        domain  of the step's requests
        rng     the only source of randomness
        """
        ...

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Learn from one step of each run.

        arms        [S] int64, what was pulled
        feedback    what it brought
        """
        ...
