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
    drafts = list(itertools.product(*(range(len(own.drafts)) for own in requests)))
    lengths = np.array([verified(chosen) for chosen in drafts])
    chosen = np.array(drafts)
    laws = [emitted.law[b, chosen[:, b], lengths[:, b]] for b in range(len(requests))]
    laws[0] = laws[0] * np.prod([own.chance[chosen[:, b]] for b, own in enumerate(requests)], axis=0)[:, None]
    axes = ["zabcdefgh"[0] + "abcdefgh"[b] for b in range(len(requests))]
    return np.asarray(np.einsum(f"{','.join(axes)}->{'abcdefgh'[: len(requests)]}", *laws))


def distance(requests: Sequence[RequestLaws], law: np.ndarray) -> float:
    """L1 distance of such a law from the target's."""
    target = reduce(np.multiply.outer, [own.continuations[0][0] for own in requests])
    return float(np.abs(law - target).sum())
