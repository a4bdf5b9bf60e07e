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
    margin       [P, D] float64, logit of the drafted token minus the next best, 0 beyond (None: no such score)
    """

    token_ids: np.ndarray
    num_drafts: np.ndarray
    confidence: np.ndarray
    margin: np.ndarray | None = None


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
