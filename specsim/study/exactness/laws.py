"""Random laws of a target and a drafter over a few tokens, small enough to enumerate.

Axes: B requests, D draft positions, V vocabulary; P = V ** k prefixes of k tokens, in lexicographic order.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specsim.core import DraftStructure, Score

LARGEST_MARGIN = 50.0


@dataclass(frozen=True)
class Shape:
    """Size of an enumeration."""

    vocabulary: int
    depth: int
    batch: int


@dataclass(frozen=True)
class RequestLaws:
    """What target and drafter say of one request, by the tokens before a position.

    target  D + 1 arrays, the k-th [V ** k, V]: law of the token after each prefix of k tokens
    draft   D arrays, likewise
    """

    target: tuple[np.ndarray, ...]
    draft: tuple[np.ndarray, ...]

    @property
    def depth(self) -> int:
        """Draft positions, D."""
        return len(self.draft)

    @property
    def vocabulary(self) -> int:
        """Tokens, V."""
        return int(self.target[0].shape[1])

    @cached_property
    def drafts(self) -> np.ndarray:
        """[V ** D, D] int64, every draft."""
        every = list(itertools.product(range(self.vocabulary), repeat=self.depth))
        return np.array(every, dtype=np.int64)

    def prefix(self, position: int) -> np.ndarray:
        """[V ** D] int64, which prefix of that many tokens each draft begins with."""
        below: int = self.vocabulary ** (self.depth - position)
        return np.arange(len(self.drafts)) // below

    @cached_property
    def drafted(self) -> np.ndarray:
        """[V ** D, D] float64, draft law's probability of each drafted token."""
        columns = [self.draft[k][self.prefix(k), self.drafts[:, k]] for k in range(self.depth)]
        return np.stack(columns, axis=1)

    @cached_property
    def chance(self) -> np.ndarray:
        """[V ** D] float64, that each draft is proposed."""
        return np.asarray(self.drafted.prod(axis=1))

    @cached_property
    def scores(self) -> dict[Score, np.ndarray]:
        """Each score of each draft, [V ** D, D] float64."""
        laws = [self.draft[k][self.prefix(k)] for k in range(self.depth)]
        ordered = np.sort(np.stack(laws, axis=1), axis=2)
        largest, second = ordered[:, :, -1], np.maximum(ordered[:, :, -2], np.finfo(float).tiny)
        before = np.concatenate([np.ones((len(self.drafts), 1)), self.drafted[:, :-1]], axis=1)
        return {
            "drawn_prob": self.drafted,
            "max_prob": largest,
            "margin": np.minimum(np.log(largest / second), LARGEST_MARGIN),
            "shifted_prob": before,
        }

    @cached_property
    def continuations(self) -> tuple[np.ndarray, ...]:
        """D + 2 arrays, the k-th [V ** k, V ** (D + 1 - k)]: target's law of what follows k tokens, up to D + 1."""
        found = [np.ones((self.vocabulary ** (self.depth + 1), 1))]
        for law in reversed(self.target):
            after = found[0].reshape(*law.shape, -1)
            found.insert(0, (law[:, :, None] * after).reshape(len(law), -1))
        return tuple(found)


def random_laws(rng: np.random.Generator, shape: Shape, structure: DraftStructure) -> tuple[RequestLaws, ...]:
    """Laws of every request of a step.

    shape      how large
    structure  whether the draft law at a position is the same after every prefix
    returns    B laws; in half of the calls some tokens are impossible, as after a filter
    """
    sparse = bool(rng.random() < 0.5)
    return tuple(_request(rng, shape, structure, sparse) for _ in range(shape.batch))


def _request(rng: np.random.Generator, shape: Shape, structure: DraftStructure, sparse: bool) -> RequestLaws:
    sizes = [shape.vocabulary**k for k in range(shape.depth + 1)]
    target = tuple(_laws(rng, size, shape.vocabulary, sparse) for size in sizes)
    draft = []
    for size in sizes[:-1]:
        own = _laws(rng, size, shape.vocabulary, sparse)
        draft.append(own if structure == "autoregressive" else np.repeat(own[:1], size, axis=0))
    return RequestLaws(target, tuple(draft))


def _laws(rng: np.random.Generator, size: int, vocabulary: int, sparse: bool) -> np.ndarray:
    """[size, V] float64, random laws, some with an impossible token."""
    laws = rng.dirichlet(np.full(vocabulary, rng.choice([0.5, 1.0])), size)
    impossible = rng.integers(0, vocabulary, size)
    if sparse:
        without = rng.random(size) < 0.3
        laws[without, impossible[without]] = 0.0
        laws /= laws.sum(axis=1, keepdims=True)
    return laws
