"""A logistic of the top-2 logit margin, position by position, refit online: vLLM's acceptance estimator."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import Score
from specsim.policies.calibrators.curves import knots_of
from specsim.policies.calibrators.learned_curves import LearnedCurves
from specsim.policies.calibrators.observations import Observations

NEWTON_STEPS = 12
SMALLEST_STEP = 1e-6
PRIOR: np.ndarray = np.array([1.0, 0.0])
RIDGE = 1.0
"""Weight of the pull towards the prior (1, 0), a two-way softmax: it decides where little was tested."""


@dataclass(kw_only=True)
class Logistic(LearnedCurves):
    """Chance of acceptance = sigmoid(w margin + b), with w and b of each position refit by Newton's method.

    Source: vLLM pull requests 47808 and 52228: refit every 100 steps, the first three on fully verified steps.
    """

    warm_up: Annotated[int, Field(ge=0)] = 3

    scores = ("margin",)

    def fit(self, seen: Observations, score: Score) -> np.ndarray:
        """[D, G] float64."""
        knots = knots_of(score)
        weights = np.array([_newton(*seen.at(position)) for position in range(seen.raw.shape[1])]).reshape(-1, 2)
        curves: np.ndarray = _sigmoid(weights[:, :1] * knots + weights[:, 1:])
        return curves


def _newton(margin: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    """[2] the slope and offset most likely to have brought these outcomes, under the prior."""
    features = np.stack([margin, np.ones_like(margin)], axis=1)
    weights = PRIOR.copy()
    for _ in range(NEWTON_STEPS):
        chance = _sigmoid(features @ weights)
        gradient = features.T @ (chance - accepted) + RIDGE * (weights - PRIOR)
        curvature = (features * (chance * (1.0 - chance))[:, None]).T @ features + RIDGE * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        # A full step overshoots where the chance is flat: halve it until the loss falls.
        now, size = _loss(features, accepted, weights), 1.0
        while _loss(features, accepted, weights - size * step) > now and size > SMALLEST_STEP:
            size /= 2.0
        weights = weights - size * step
        weights[0] = max(weights[0], 0.0)  # more margin never means less chance, whatever few outcomes say
    return weights


def _loss(features: np.ndarray, accepted: np.ndarray, weights: np.ndarray) -> float:
    """Negative log likelihood and the pull of the prior."""
    odds = features @ weights
    return float(np.sum(np.logaddexp(0.0, odds) - accepted * odds) + 0.5 * RIDGE * np.sum((weights - PRIOR) ** 2))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    chance: np.ndarray = 1.0 / (1.0 + np.exp(-np.clip(x, -40.0, 40.0)))
    return chance
