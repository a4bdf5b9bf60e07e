"""When requests arrive, and which ones: closed loop, Poisson, Gamma, or the trace's own arrivals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from specsim.errors import InputError
from specsim.serving.engine_config import LARGEST_LIMIT
from specsim.serving.streams import ARRIVAL_STREAM, ORDER_STREAM

LATEST_ARRIVAL = 1e9
"""Seconds. Until then a clock of float64 tells instants a microsecond apart; much later a step takes it nowhere."""


def request_order(num_available: int, seed: int) -> Iterator[int]:
    """Rows of the trace in the order they are submitted: permutation after permutation, without end."""
    rng = np.random.default_rng([seed, ORDER_STREAM])
    while True:
        yield from rng.permutation(num_available).tolist()


def _check_positive(name: str, value: float) -> None:
    if not value > 0 or not np.isfinite(value):
        raise InputError(f"{name} is {value}; it must be positive and finite")


def _check_count(name: str, value: int) -> None:
    if not 1 <= value <= LARGEST_LIMIT:
        raise InputError(f"{name} is {value}; it must be from 1 to {LARGEST_LIMIT:,}")


def _check_instants(instants: np.ndarray) -> None:
    if not instants.max(initial=0.0) <= LATEST_ARRIVAL:
        raise InputError(f"the last request would arrive at {instants.max():g} s; allowed: until {LATEST_ARRIVAL:g} s")


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """As many clients as `concurrency`, each submitting its next request when its last one finished.

    The run ends when `num_requests` have finished; those in flight then are not counted as finished, so the
    batch never drains and the whole run is the steady state.

    concurrency     requests in the system
    num_requests    finished requests that end the run
    """

    concurrency: int
    num_requests: int

    def __post_init__(self) -> None:
        _check_count("concurrency", self.concurrency)
        _check_count("num_requests", self.num_requests)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Independent inter-arrival times from a Gamma law; the run ends when all requests finished.

    rate            requests a second
    num_requests    requests in all
    burstiness      shape of the Gamma law as in vLLM's benchmark: 1 is Poisson, below 1 burstier
    """

    rate: float
    num_requests: int
    burstiness: float = 1.0

    def __post_init__(self) -> None:
        _check_positive("rate", self.rate)
        _check_count("num_requests", self.num_requests)
        _check_positive("burstiness", self.burstiness)

    def arrivals(self, seed: int) -> np.ndarray:
        """[num_requests] float64 instants, seconds; the mean gap is 1 / rate whatever the shape.

        Raises InputError when the last one is beyond `LATEST_ARRIVAL`.
        """
        rng = np.random.default_rng([seed, ARRIVAL_STREAM])
        scale = 1.0 / max(self.rate * self.burstiness, np.finfo(np.float64).tiny)
        instants = np.cumsum(rng.gamma(self.burstiness, scale, self.num_requests))
        _check_instants(instants)
        return instants


def Poisson(rate: float, num_requests: int) -> Gamma:
    """Poisson arrivals: a Gamma law of shape 1."""
    return Gamma(rate, num_requests, 1.0)


@dataclass(frozen=True, slots=True)
class TraceArrivals:
    """Every request of the trace once, at its recorded arrival.

    time_scale      recorded instants are multiplied by this: 0.5 doubles the load
    """

    time_scale: float = 1.0

    def __post_init__(self) -> None:
        _check_positive("time_scale", self.time_scale)

    def schedule(self, arrival_at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows in order of arrival, and their scaled instants.

        arrival_at  [requests] float64, seconds, NaN when the trace has none
        Raises      InputError when it has none, or the last one is beyond `LATEST_ARRIVAL`
        """
        if len(arrival_at) == 0 or np.isnan(arrival_at).any():
            missing = int(np.isnan(arrival_at).sum())
            raise InputError(f"requests.parquet, column arrival_at: {missing} requests have no arrival to replay")
        order = np.argsort(arrival_at, kind="stable")
        instants = (arrival_at[order] - arrival_at[order[0]]) * self.time_scale
        _check_instants(instants)
        return order, instants


Workload: TypeAlias = ClosedLoop | Gamma | TraceArrivals
