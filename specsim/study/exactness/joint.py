"""The law of what all requests emit together, and its distance from the target's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from specsim.study.exactness.emission import Emission
from specsim.study.exactness.laws import RequestLaws

Verified = Callable[[tuple[int, ...]], Sequence[int]]
"""Verified lengths of all requests once each has drafted so: index of each request's draft to a length."""


def joint_law(requests: Sequence[RequestLaws], emitted: Emission, verified: Verified) -> np.ndarray:
    """Law of the next D + 1 tokens of all requests, [V ** (D + 1)] * B float64.

    requests  their laws
    emitted   what is emitted after each draft and verified length
    verified  how much of each draft is verified
    """
    total = 0.0
    for drafts in itertools.product(*(range(len(own.drafts)) for own in requests)):
        chance = float(np.prod([own.chance[draft] for own, draft in zip(requests, drafts, strict=True)]))
        laws = [emitted.law[b, draft, n] for b, (draft, n) in enumerate(zip(drafts, verified(drafts), strict=True))]
        total = total + chance * reduce(np.multiply.outer, laws)
    return np.asarray(total)


def distance(requests: Sequence[RequestLaws], law: np.ndarray) -> float:
    """L1 distance of such a law from the target's."""
    target = reduce(np.multiply.outer, [own.continuations[0][0] for own in requests])
    return float(np.abs(law - target).sum())
