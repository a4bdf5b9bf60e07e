"""What the trace says of each drafter, for the report: acceptance and calibration, over all requests and by domain."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from specsim.core import Score
from specsim.study.result import DrafterStatistics
from specsim.trace import TraceLike
from specsim.trace.statistics import acceptance_by_position, by_domain, calibration, walked_acceptance_length

PROBABILITIES: tuple[Score, ...] = ("drawn_prob", "max_prob", "shifted_prob")
"""Scores that lie in [0, 1], the one most policies read first."""

MOST_REQUESTS = 200
"""Requests read, evenly spread over the trace: enough for rates to two digits, quick on any trace."""


def drafter_statistics(trace: TraceLike) -> list[DrafterStatistics]:
    """Every drafter over all domains, and over each one when there are several.

    trace   at most 200 of its requests are read
    """
    requests = np.unique(np.linspace(0, len(trace) - 1, min(len(trace), MOST_REQUESTS)).astype(np.int64))
    found = []
    for drafter in range(len(trace.drafters)):
        found.append(_statistics(trace, drafter, "all", requests))
        domains = by_domain(trace, lambda indices: np.intersect1d(indices, requests))
        if len(domains) > 1:
            found += [_statistics(trace, drafter, name, kept) for name, kept in domains.items() if len(kept)]
    return found


def _statistics(trace: TraceLike, drafter: int, domain: str, requests: Iterable[int]) -> DrafterStatistics:
    spec = trace.drafters[drafter]
    kept = list(requests)
    positions = acceptance_by_position(trace, drafter, kept)
    score = next((score for score in PROBABILITIES if score in spec.scores), None)
    pooled = None if score is None else calibration(trace, drafter, kept, score).pooled
    used = np.zeros(0, dtype=np.int64) if pooled is None else np.flatnonzero(pooled.count)
    bins = {
        "bin_confidence": [] if pooled is None else pooled.mean_confidence[used].tolist(),
        "bin_accepted": [] if pooled is None else pooled.acceptance_rate[used].tolist(),
        "bin_count": [] if pooled is None else pooled.count[used].astype(float).tolist(),
    }
    return DrafterStatistics(
        name=spec.name,
        domain=domain,
        mean_acceptance_length=walked_acceptance_length(trace, drafter, kept),
        survival=positions.survival.tolist(),
        conditional=positions.conditional.tolist(),
        calibration=bins,
        ece=float("nan") if pooled is None else pooled.expected_calibration_error,
        auc=float("nan") if pooled is None else pooled.auc,
    )
