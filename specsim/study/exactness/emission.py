"""What the product's own accept and recover make of every draft, found by injecting uniforms.

Neither is asked what its probabilities are. As functions of a uniform both are steps; bisection finds where the
steps lie to the last bit, and the length of a step is a probability. No sampling, and nothing of theirs repeated here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specsim.core import DraftLaw
from specsim.kernels import accept as acceptance
from specsim.kernels import recover as recovery
from specsim.kernels.candidates import Candidates
from specsim.study.exactness.laws import RequestLaws

BISECTIONS = 52
BELOW_ONE = float(np.nextafter(1.0, 0.0))


@dataclass(frozen=True)
class Emission:
    """What is emitted after each draft and verified length.

    law         [B, V ** D, D + 1, V ** (D + 1)] float64, law of each request's next D + 1 tokens, continued from the
                target where the step emits fewer
    impossible  whether some uniform lets a token through that the target never emits
    """

    law: np.ndarray
    impossible: bool


@dataclass(frozen=True)
class Cases:
    """Every request, draft and verified length, one a row; with `patterns`, every outcome of its accept tests too.

    request     [N] int64
    draft       [N] int64, index of the draft
    candidates  what the kernels see of it
    """

    request: np.ndarray
    draft: np.ndarray
    candidates: Candidates

    def repeated(self, times: int) -> Cases:
        """The same rows again and again."""
        old = self.candidates
        again = [None if rows is None else np.concatenate([rows] * times) for rows in (old.target_law, old.draft_law)]
        candidates = Candidates(np.tile(old.tokens, (times, 1)), np.tile(old.num_verify, times), again[0], again[1])
        return Cases(np.tile(self.request, times), np.tile(self.draft, times), candidates)


def emission(requests: Sequence[RequestLaws], law: DraftLaw) -> Emission:
    """Enumerate every draft, verified length, accept test and recovered or bonus token of all requests.

    requests  their laws, of one size
    law       how drafts are verified
    """
    depth, size = requests[0].depth, len(requests[0].drafts)
    cases = _cases(requests, law)
    uniforms, chances = _accept_tests(cases.candidates)
    cases = cases.repeated(2**depth)
    num_accepted = acceptance.accept(cases.candidates, uniforms)
    edges, possible = _recovered(cases.candidates, num_accepted)
    laws = np.zeros((len(requests), size, depth + 1, requests[0].vocabulary ** (depth + 1)))
    for row in np.flatnonzero(chances).tolist():
        request, draft = int(cases.request[row]), int(cases.draft[row])
        out = laws[request, draft, int(cases.candidates.num_verify[row])]
        _add(out, requests[request], draft, int(num_accepted[row]), chances[row] * np.diff(edges[row]))
    return Emission(laws, not (possible and _accepted_are_possible(cases.candidates, num_accepted)))


def _cases(requests: Sequence[RequestLaws], law: DraftLaw) -> Cases:
    depth, size = requests[0].depth, len(requests[0].drafts)
    each = itertools.product(range(len(requests)), range(size), range(depth + 1))
    request, draft, length = np.array(list(each), dtype=np.int64).T
    tokens, targets, drafts = [], [], []
    for own in requests:
        tokens.append(own.drafts)
        targets.append(np.stack([own.target[k][own.prefix(k)] for k in range(depth + 1)], axis=1))
        drafts.append(np.stack([own.draft[k][own.prefix(k)] for k in range(depth)], axis=1))
    candidates = Candidates(
        tokens=np.stack(tokens)[request, draft],
        num_verify=length,
        target_law=np.stack(targets)[request, draft],
        draft_law=None if law == "point_mass" else np.stack(drafts)[request, draft],
    )
    return Cases(request, draft, candidates)


def _accept_tests(candidates: Candidates) -> tuple[np.ndarray, np.ndarray]:
    """A uniform from every combination of passed and failed tests, and the chance of that combination.

    returns  [2 ** D * N, D] and [2 ** D * N] float64, combination by combination
    """
    batch, depth = candidates.tokens.shape

    def passes(position: int, uniform: np.ndarray) -> np.ndarray:
        others = np.zeros((batch, depth))
        others[:, position] = uniform
        return np.asarray(acceptance.accept(candidates, others) > position)

    chance = np.stack([_measure(lambda u, k=k: passes(k, u), batch) for k in range(depth)], axis=1)  # type: ignore[misc]
    fails_at = np.minimum((1.0 + chance) / 2.0, BELOW_ONE)
    uniforms, weights = [], []
    for passed in itertools.product((True, False), repeat=depth):
        uniforms.append(np.where(passed, 0.0, fails_at))
        weights.append(np.where(passed, chance, 1.0 - chance).prod(axis=1))
    return np.concatenate(uniforms), np.concatenate(weights)


def _recovered(candidates: Candidates, num_accepted: np.ndarray) -> tuple[np.ndarray, bool]:
    """Where the token that follows changes, and whether the target emits what the ends of the interval bring.

    returns  [N, V + 1] float64 from 0 to 1: token v is drawn between the v-th and the next
    """
    batch, _, vocabulary = candidates.target_law.shape

    def drawn(uniform: np.ndarray) -> np.ndarray:
        return np.asarray(recovery.recover(candidates, num_accepted, uniform))

    edges = [_measure(lambda u, v=v: drawn(u) <= v, batch) for v in range(vocabulary - 1)]  # type: ignore[misc]
    target = candidates.target_law[np.arange(batch), num_accepted]
    ends = [drawn(np.full(batch, uniform)) for uniform in (0.0, BELOW_ONE)]
    possible = all(bool((target[np.arange(batch), tokens] > 0.0).all()) for tokens in ends)
    return np.stack([np.zeros(batch), *edges, np.ones(batch)], axis=1), possible


def _accepted_are_possible(candidates: Candidates, num_accepted: np.ndarray) -> bool:
    depth = candidates.tokens.shape[1]
    chances = np.take_along_axis(candidates.target_law[:, :depth], candidates.tokens[:, :, None], axis=2)[:, :, 0]
    return bool((chances > 0.0)[np.arange(depth) < num_accepted[:, None]].all())


def _measure(holds: Callable[[np.ndarray], np.ndarray], size: int) -> np.ndarray:
    """Share of the uniforms for which something holds, if it holds up to some uniform and not beyond.

    holds    [N] float64 uniforms to [N] bool
    returns  [N] float64
    """
    low, high = np.zeros(size), np.ones(size)
    never = ~holds(low)  # exactly 0 then, so that what cannot happen is not enumerated
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        inside = holds(middle)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.where(never, 0.0, high)


def _add(out: np.ndarray, laws: RequestLaws, draft: int, num_accepted: int, token_law: np.ndarray) -> None:
    """Add to a law of D + 1 tokens: the accepted drafts, a token of this law, then what the target says.

    out        [V ** (D + 1)] float64, changed in place
    token_law  [V] float64, times the chance of getting here
    """
    prefix = int(laws.prefix(num_accepted)[draft])
    after = laws.continuations[num_accepted + 1].reshape(
        -1, laws.vocabulary, out.size // laws.vocabulary ** (num_accepted + 1)
    )
    reached = out.reshape(laws.vocabulary**num_accepted, laws.vocabulary, -1)
    reached[prefix] += token_law[:, None] * after[prefix]
