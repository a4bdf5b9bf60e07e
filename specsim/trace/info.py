"""A trace in numbers: what `specsim trace info` shows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from specsim.trace.protocol import TraceLike
from specsim.trace.statistics import (
    acceptance_by_position,
    calibration,
    mean_acceptance_length,
    walked_acceptance_length,
)


def describe(trace: TraceLike) -> dict[str, Any]:
    """A trace's origin, size and acceptance, JSON-able; reads every block."""
    manifest, requests = trace.manifest, trace.requests
    return {
        "name": manifest.name,
        "kind": manifest.kind,
        "synthetic": manifest.synthetic,
        "target": manifest.target,
        "how": manifest.how,
        "recorded_by": manifest.recorded_by,
        "hardware": manifest.hardware,
        "sampling": manifest.sampling.model_dump(mode="json"),
        "licence": manifest.licence,
        "num_requests": len(requests),
        "num_prompt_tokens": int(requests.num_prompt_tokens.sum()),
        "num_output_tokens": int(requests.num_output_tokens.sum()),
        "domains": [_describe_domain(trace, code) for code in np.unique(requests.domain).tolist()],
        "drafters": [_describe_drafter(trace, arm) for arm in range(len(trace.drafters))],
    }


def _describe_domain(trace: TraceLike, code: int) -> dict[str, Any]:
    requests = trace.requests
    members = np.flatnonzero(requests.domain == code)
    return {
        "name": requests.domains[code],
        "num_requests": len(members),
        "num_prompt_tokens": int(requests.num_prompt_tokens[members].sum()),
        "num_output_tokens": int(requests.num_output_tokens[members].sum()),
        "mean_acceptance_length": {
            spec.name: _number(walked_acceptance_length(trace, arm, members)) for arm, spec in enumerate(trace.drafters)
        },
    }


def _describe_drafter(trace: TraceLike, arm: int) -> dict[str, Any]:
    spec = trace.drafters[arm]
    acceptance = acceptance_by_position(trace, arm)
    described = {
        "name": spec.name,
        "kind": spec.kind,
        "law": spec.law,
        "structure": spec.structure,
        "scores": list(spec.scores),
        "score_source": trace.manifest.drafters[arm].score_source,
        "max_depth": spec.max_depth,
        "mean_acceptance_length": _number(walked_acceptance_length(trace, arm, None)),
        "mean_acceptance_length_all_positions": _number(mean_acceptance_length(trace, arm)),
        "survival": [_number(value) for value in acceptance.survival],
        "conditional_acceptance": [_number(value) for value in acceptance.conditional],
    }
    if "drawn_prob" in spec.scores:
        pooled = calibration(trace, arm).pooled
        described["expected_calibration_error"] = _number(pooled.expected_calibration_error)
        described["auc"] = _number(pooled.auc)
    return described


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else float(value)
