"""Acceptance statistics of a trace: by position, along the greedy walk, and how well confidence predicts it.

Every function reads one drafter of a trace, request by request, and can be kept to some of the requests.
Axes: D draft positions, N confidence bins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from specsim.core import Blocks, Score
from specsim.errors import InputError
from specsim.trace.protocol import TraceLike

Statistic = TypeVar("Statistic")


@dataclass(frozen=True, slots=True)
class AcceptanceByPosition:
    """Counts by draft position k = 1 .. D; censored blocks are left out where they are censored.

    num_blocks    [D] int64, blocks of which it is known whether the first k drafts are accepted
    num_survived  [D] int64, those whose first k drafts are all accepted
    num_tested    [D] int64, drafts at k observed after all before them were accepted
    num_accepted  [D] int64, those accepted
    """

    num_blocks: np.ndarray
    num_survived: np.ndarray
    num_tested: np.ndarray
    num_accepted: np.ndarray

    @property
    def survival(self) -> np.ndarray:
        """[D] float64, num_survived / num_blocks: the share of blocks whose first k drafts are accepted.

        A block that proposes fewer than k drafts does not survive to k. NaN without blocks.
        """
        return _ratio(self.num_survived, self.num_blocks)

    @property
    def conditional(self) -> np.ndarray:
        """[D] float64, num_accepted / num_tested: acceptance of draft k given those before it. NaN untested."""
        return _ratio(self.num_accepted, self.num_tested)


@dataclass(frozen=True, slots=True)
class Walk:
    """What fixed-depth decoding would do along each output, its first token from the prefill.

    num_steps     steps taken
    num_accepted  drafts accepted in them
    num_emitted   tokens emitted in them: the outputs without their first tokens
    """

    num_steps: int
    num_accepted: int
    num_emitted: int

    @property
    def mean_acceptance_length(self) -> float:
        """1 + num_accepted / num_steps: tokens a step, the bonus token included. NaN without steps."""
        return 1.0 + self.num_accepted / self.num_steps if self.num_steps else float("nan")


@dataclass(frozen=True, slots=True)
class Reliability:
    """How often drafts of a given confidence were accepted, over tested drafts.

    edges            [N + 1] float64, bin n holds edges[n] <= confidence < edges[n + 1]; the last includes 1
    count            [N] int64, tested drafts
    mean_confidence  [N] float64, NaN in an empty bin
    acceptance_rate  [N] float64, accepted / tested, NaN in an empty bin
    auc              chance that an accepted draft has the higher confidence than a rejected one, ties counted
                     half; NaN when all were accepted or all rejected
    """

    edges: np.ndarray
    count: np.ndarray
    mean_confidence: np.ndarray
    acceptance_rate: np.ndarray
    auc: float

    @property
    def expected_calibration_error(self) -> float:
        """Sum over bins of count / total x |mean_confidence - acceptance_rate|. NaN without drafts."""
        used = self.count > 0
        if not used.any():
            return float("nan")
        gap = np.abs(self.mean_confidence[used] - self.acceptance_rate[used])
        return float(np.sum(gap * self.count[used]) / np.sum(self.count))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Reliability of a drafter's confidence, over all draft positions and at each of them."""

    pooled: Reliability
    by_position: tuple[Reliability, ...]


def acceptance_by_position(
    trace: TraceLike, drafter: int, requests: Iterable[int] | None = None
) -> AcceptanceByPosition:
    """Survival and conditional acceptance by draft position, over every recorded position.

    Whether a block is left out at k depends on how far it was observed, never on what was observed, so that
    leaving it out does not bias the rate.
    """
    depth = trace.drafters[drafter].max_depth
    counts = np.zeros((4, depth), dtype=np.int64)
    k = np.arange(1, depth + 1)
    for _, blocks in _blocks(trace, drafter, requests):
        accepted, verified = blocks.num_accepted[:, None], blocks.num_verified[:, None]
        known = verified >= np.minimum(k, blocks.num_drafts[:, None])
        tested = (accepted >= k - 1) & (verified >= k)
        for row, mask in enumerate((known, known & (accepted >= k), tested, tested & (accepted >= k))):
            counts[row] += mask.sum(axis=0)
    return AcceptanceByPosition(*counts)


def walk(trace: TraceLike, drafter: int, requests: Iterable[int] | None = None, depth: int | None = None) -> Walk:
    """Decode every output with a fixed depth: from p = 1, p += min(num_accepted[p], depth) + 1.

    depth  drafts verified a step (None: the drafter's max_depth)
    Raises InputError for a trajectory trace: the walk would need positions it lacks.
    """
    if trace.kind != "position_indexed":
        raise InputError(f"a walk over a {trace.kind} trace; allowed: a position_indexed trace")
    depth = trace.drafters[drafter].max_depth if depth is None else depth
    num_steps = num_accepted = num_emitted = 0
    for index, blocks in _blocks(trace, drafter, requests):
        accepted = np.minimum(blocks.num_accepted, depth).tolist()
        length = int(trace.requests.num_output_tokens[index])
        position = 1
        while position < length:
            num_accepted += accepted[position]
            position += accepted[position] + 1
            num_steps += 1
        num_emitted += length - 1
    return Walk(num_steps, num_accepted, num_emitted)


def walked_acceptance_length(trace: TraceLike, drafter: int, requests: Iterable[int] | None = None) -> float:
    """Tokens a step at full depth, the bonus included, along the walk; a trajectory trace is its policy's own walk."""
    if trace.kind == "position_indexed":
        return walk(trace, drafter, requests).mean_acceptance_length
    return mean_acceptance_length(trace, drafter, requests)


def mean_acceptance_length(trace: TraceLike, drafter: int, requests: Iterable[int] | None = None) -> float:
    """1 + mean num_accepted over every recorded position, visited by the walk or not; the bonus included.

    Easy stretches weigh more here than along the walk, which jumps over them. Outputs' ends count as they are.
    """
    total = blocks_seen = 0
    for _, blocks in _blocks(trace, drafter, requests):
        total += int(blocks.num_accepted.sum())
        blocks_seen += len(blocks.num_accepted)
    return 1.0 + total / blocks_seen if blocks_seen else float("nan")


def calibration(
    trace: TraceLike,
    drafter: int,
    requests: Iterable[int] | None = None,
    score: Score = "drawn_prob",
    num_bins: int = 10,
) -> Calibration:
    """Reliability of a score in [0, 1] over tested drafts: all before them accepted, and not censored.

    Memory: 9 bytes for each tested draft.
    """
    depth = trace.drafters[drafter].max_depth
    scores: list[list[np.ndarray]] = [[] for _ in range(depth)]
    accepted: list[list[np.ndarray]] = [[] for _ in range(depth)]
    for _, blocks in _blocks(trace, drafter, requests):
        for k in range(1, depth + 1):
            tested = (blocks.num_accepted >= k - 1) & (blocks.num_verified >= k)
            scores[k - 1].append(blocks.scores[score][tested, k - 1])
            accepted[k - 1].append(blocks.num_accepted[tested] >= k)
    columns = [
        (np.concatenate(s or [np.zeros(0)]), np.concatenate(a or [np.zeros(0, bool)]))
        for s, a in zip(scores, accepted, strict=True)
    ]
    pooled = reliability(np.concatenate([s for s, _ in columns]), np.concatenate([a for _, a in columns]), num_bins)
    return Calibration(pooled, tuple(reliability(s, a, num_bins) for s, a in columns))


def reliability(confidence: np.ndarray, accepted: np.ndarray, num_bins: int = 10) -> Reliability:
    """Reliability of `confidence` [M] float64 in [0, 1] for `accepted` [M] bool, in bins of equal width."""
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    bins = np.clip(np.searchsorted(edges, confidence, side="right") - 1, 0, num_bins - 1)
    count = np.bincount(bins, minlength=num_bins)
    return Reliability(
        edges=edges,
        count=count,
        mean_confidence=_ratio(np.bincount(bins, weights=confidence, minlength=num_bins), count),
        acceptance_rate=_ratio(np.bincount(bins, weights=accepted, minlength=num_bins), count),
        auc=area_under_curve(confidence, accepted),
    )


def area_under_curve(confidence: np.ndarray, accepted: np.ndarray) -> float:
    """Chance that an accepted draft has the higher confidence than a rejected one, ties counted half.

    Source: the Mann-Whitney rank-sum statistic divided by the number of pairs.
    """
    from scipy.stats import rankdata  # takes longer to import than all the rest of specsim

    hits = int(accepted.sum())
    misses = len(accepted) - hits
    if hits == 0 or misses == 0:
        return float("nan")
    ranks = rankdata(confidence)
    return float((ranks[accepted].sum() - hits * (hits + 1) / 2) / (hits * misses))


def by_domain(trace: TraceLike, statistic: Callable[[np.ndarray], Statistic]) -> dict[str, Statistic]:
    """`statistic` of the requests' indices of each domain that has any: `lambda r: walk(trace, 0, r)`."""
    found = {}
    for code, name in enumerate(trace.requests.domains):
        indices = np.flatnonzero(trace.requests.domain == code)
        if len(indices):
            found[name] = statistic(indices)
    return found


def _blocks(trace: TraceLike, drafter: int, requests: Iterable[int] | None) -> Iterator[tuple[int, Blocks]]:
    for index in range(len(trace)) if requests is None else requests:
        yield int(index), trace.visits(int(index), drafter)[1]


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    ratio = np.full(len(whole), np.nan)
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio
