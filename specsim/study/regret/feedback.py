"""What one step of many runs brought: of the pulled arms, and of all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.policies.rewards import RewardName

Floats = np.ndarray


@dataclass(slots=True)
class Draws:
    """What every arm would bring in some steps, pulled or not.

    accepted    [n, S, A] float64, accepted drafts
    tested      [n, S, A] float64, drafts that met an accept test
    tokens      [n, S, A] float64, tokens emitted
    """

    accepted: Floats
    tested: Floats
    tokens: Floats


@dataclass(slots=True)
class Feedback:
    """What one step brought in each run, S runs side by side.

    accepted, tested, tokens    [S] float64, of the pulled arm
    seconds                     [S] float64, the step's, switching included
    all_accepted, all_tested    [S, A] float64, of every arm, for policies that learn from all
    domain                      of the step's requests
    """

    accepted: Floats
    tested: Floats
    tokens: Floats
    seconds: Floats
    all_accepted: Floats
    all_tested: Floats
    domain: str

    def tally(self, reward: RewardName) -> tuple[Floats, Floats]:
        """Gain and exposure of each run, [S] float64; see specsim.policies.rewards."""
        return (self.accepted, self.tested) if reward == "accepted_fraction" else (self.tokens, self.seconds)
