"""Made-up traces calibrated to published acceptance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from specsim.trace.hardness import Spread
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace

H20_DOMAINS: Mapping[str, float] = MappingProxyType({"math": 2.0, "code": 2.0, "chat": 1.0})
"""Shares of the five data sets behind the published means: GSM8K and Math500, HumanEval and MBPP, MT-Bench."""

H20_DIFFICULTY: Mapping[str, float] = MappingProxyType({"math": 0.69, "code": 0.93, "chat": 1.76})
"""How hard each domain is for DFlash on Qwen3-8B: -ln of the constant rate that gives its published mean
acceptance length at 7 drafts (5.12, 4.50, 3.11), divided by the mean of the five. Source: DSpark paper, table 1."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The five numbers that were fitted.

    first_rate, last_rate  conditional acceptance of the first draft, and what it approaches with depth
    spread, hidden_variance  see `trace.hardness`
    """

    first_rate: float
    last_rate: float
    spread: Spread
    hidden_variance: float


H20_FITTED = Fitted(first_rate=0.781, last_rate=0.836, spread=Spread(request=0.04, token=1.18), hidden_variance=1.18)
"""Written by hand from the output of `python benchmarks/fit_h20_trace.py --fit`."""


def h20_config(fitted: Fitted, **workload: Any) -> SyntheticConfig:
    """The configuration with these numbers; `workload` are fields of `SyntheticConfig`."""
    approach = np.exp(-np.arange(15) / 5.0)
    rates = fitted.last_rate + (fitted.first_rate - fitted.last_rate) * approach
    drafter = SyntheticDrafter(
        name="dflash",
        rates=tuple(round(float(rate), 4) for rate in rates),
        hidden_variance=fitted.hidden_variance,
        domain_difficulty=dict(H20_DIFFICULTY),
    )
    return SyntheticConfig("h20-dflash", (drafter,), domains=dict(H20_DOMAINS), spread=fitted.spread, **workload)


def h20_dflash(
    num_requests: int = 256,
    num_output_tokens: tuple[int, int] = (256, 768),
    distinct_requests: int | None = None,
    seed: int = 0,
) -> SyntheticTrace:
    """A made-up trace with the acceptance of DFlash, block 16, on Qwen3-8B as published with D-cut for the H20.

    num_requests       requests of the trace
    num_output_tokens  least and most
    distinct_requests  after this many, requests repeat (None: never)
    seed               0 to 2^63 - 1

    Five numbers were fitted by `benchmarks/fit_h20_trace.py` to tokens per request and step, which follow from the
    published throughput, step times and keep ratios: at full depth, and where the best-ranked drafts of the whole
    batch fill the published keep ratio. Reached (published): full depth 4.64 (4.64); batch 4 3.95 (4.01), 8 3.55
    (3.64), 16 3.06 (3.00), 32 3.05 (2.99), 64 3.07 (2.92). AUC of the confidence at the first draft .78 (.82, a
    confidence head on the same kind of drafter, DSpark paper).

    What it does not reproduce: accepted counts by verified drafts that the same page gives for 32 requests on
    another data set (6.29 tokens a step at full depth, against 4.64 from the throughputs: no single trace has
    both); conditional acceptance that falls with depth (DSpark paper: .87 to .78 on code), which would accept more
    at the smallest budget than the published throughput leaves room for.
    """
    return SyntheticTrace(
        h20_config(
            H20_FITTED,
            num_requests=num_requests,
            num_output_tokens=num_output_tokens,
            distinct_requests=distinct_requests,
            seed=seed,
        )
    )


PRESETS: Mapping[str, Callable[..., SyntheticTrace]] = MappingProxyType({"h20-dflash": h20_dflash})
"""The presets by the name the command line knows them by."""
