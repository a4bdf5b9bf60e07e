"""The acceptance model of synthetic traces: how hard each token is, and how that becomes acceptance rates.

Output token t of a request has hardness `difficulty x known x hidden`, each factor of mean 1: the request's
difficulty (Beta), what a drafter can see of the token (Gamma), and what it cannot (Gamma). Drafted at depth k,
given that the drafts before it were accepted, the token is accepted with chance exp(-hardness x hazard[k]).
Hardness belongs to the token, so the blocks that start at neighbouring positions agree about it.

Averaged over the hidden factor the chance is (1 + v x known x difficulty x hazard)^(-1/v), v its variance:
this is the calibrated confidence, exactly. Averaged over everything it must be the declared rate, which is
solved for the hazards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, roots_genlaguerre, roots_jacobi

MAX_HAZARD = 1e12
"""A hazard at which nothing is accepted."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How unevenly hard requests and tokens are: variances of factors of mean 1.

    request  variance of the requests' difficulty, 0 to below 1: 2 x Beta(a, a) with a = (1 / request - 1) / 2
    token    variance of what a drafter can see of a token's hardness, at least 0
    """

    request: float
    token: float

    def difficulty(self, uniform: np.ndarray) -> np.ndarray:
        """The difficulty at quantile `uniform` of the requests' distribution."""
        if self.request == 0.0:
            return np.ones_like(uniform)
        a = (1.0 / self.request - 1.0) / 2.0
        return np.asarray(2.0 * betaincinv(a, a, uniform))


def calibrated_confidence(exposure: np.ndarray, hidden_variance: float) -> np.ndarray:
    """Chance of acceptance given what a drafter sees: (1 + v x exposure)^(-1/v), or exp(-exposure) at v = 0.

    exposure  known x difficulty x hazard, any shape, at least 0
    """
    log_chance = -exposure if hidden_variance == 0.0 else np.log1p(hidden_variance * exposure) / -hidden_variance
    chance: np.ndarray = np.exp(log_chance)
    return chance


def solve_hazards(
    rates: Sequence[float], spread: Spread, hidden_variance: float, domains: Sequence[tuple[float, float]]
) -> np.ndarray:
    """The hazard [D] float64 at each depth that gives the declared conditional acceptance `rates`.

    rates    [D] share of drafts at k accepted among those whose predecessors all were, over every position
    domains  (weight, factor on the difficulty) of each domain; weights add up to 1

    Among blocks that survived to depth k easy requests are over-represented, so hazards are solved one after the
    other, each under the requests' distribution that the depths before it leave.
    """
    difficulty, weight = _difficulty_nodes(spread.request)
    factors = np.array([factor for _, factor in domains])
    shares = np.array([share for share, _ in domains])
    difficulty = np.outer(factors, difficulty).ravel()
    surviving = np.outer(shares, weight).ravel()
    known, chance = _token_nodes(spread.token)

    def accepted(hazard: float) -> np.ndarray:
        exposure = np.outer(difficulty, known) * hazard
        return np.asarray(calibrated_confidence(exposure, hidden_variance) @ chance)

    hazards = np.zeros(len(rates))
    for k, rate in enumerate(rates):
        hazards[k] = _solve(accepted, surviving, rate)
        surviving = surviving * accepted(hazards[k])
    return hazards


def _solve(accepted: Callable[[float], np.ndarray], weights: np.ndarray, rate: float) -> float:
    """The hazard under which the mean of `accepted(hazard)`, so weighted, is `rate`."""

    def excess(log_hazard: float) -> float:
        return float(accepted(float(np.exp(log_hazard))) @ weights / weights.sum()) - rate

    if rate >= 1.0:
        return 0.0
    low, high = float(np.log(1e-12)), float(np.log(MAX_HAZARD))
    if excess(high) >= 0.0:
        return MAX_HAZARD
    return float(np.exp(brentq(excess, low, high, xtol=1e-10)))


def _difficulty_nodes(variance: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Jacobi nodes and weights of 2 x Beta(a, a)."""
    if variance == 0.0:
        return np.ones(1), np.ones(1)
    a = (1.0 / variance - 1.0) / 2.0
    nodes, weights = roots_jacobi(32, a - 1.0, a - 1.0)
    return 1.0 + nodes, weights / weights.sum()


def _token_nodes(variance: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Laguerre nodes and weights of a Gamma variable of mean 1."""
    if variance == 0.0:
        return np.ones(1), np.ones(1)
    shape = 1.0 / variance
    nodes, weights = roots_genlaguerre(64, shape - 1.0)
    return nodes * variance, weights / weights.sum()
