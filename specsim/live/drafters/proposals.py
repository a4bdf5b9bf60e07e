"""What a drafter proposes at every position of a known output, and the seam the recorder drives drafters by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from specsim.core import DrafterSpec


@dataclass(frozen=True, slots=True)
class Proposals:
    """One block of drafts at each output position.

    token_ids    [P, D] int64, drafted tokens, -1 at and beyond `num_drafts`
    num_drafts   [P] int64, in [0, D]
    confidence   [P, D] float64, the drafter's own probability of each drafted token, 0 beyond `num_drafts`
    margin       [P, D] float64, largest logit minus the next best, 0 beyond (None: no such score)
    most         [P, D] float64, largest probability of any token, 0 beyond (None: that of the drafted one, or no law)
    accept_prob  [P, D] float64, chance that the target accepts each draft once those before it are accepted (None: the
                 drafts are certain tokens, accepted while they are the path's)
    accepted     [P] int64, leading drafts that pass the engine's tests (None, like `accept_prob`)
    """

    token_ids: np.ndarray
    num_drafts: np.ndarray
    confidence: np.ndarray
    margin: np.ndarray | None = None
    most: np.ndarray | None = None
    accept_prob: np.ndarray | None = None
    accepted: np.ndarray | None = None


class Drafter(Protocol):
    """Something that proposes tokens.

    spec            what a controller may know of it
    score_source    one sentence: how its confidence is made
    """

    @property
    def spec(self) -> DrafterSpec: ...

    @property
    def score_source(self) -> str: ...

    def propose_everywhere(self, prompt: np.ndarray, output: np.ndarray) -> Proposals:
        """What it would propose after each prefix of an output.

        prompt      [T] int64, T at least 1
        output      [P] int64; position p is after `prompt` and `output[:p]`
        returns     P blocks, each made from its own prefix alone
        """
        ...
