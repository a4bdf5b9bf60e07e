"""One temperature a position, set from left to right so that the product of confidences is right."""

from __future__ import annotations

import numpy as np
from pydantic.dataclasses import dataclass
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

from specsim.core import Score
from specsim.policies.calibrators.curves import PROBABILITY_KNOTS
from specsim.policies.calibrators.learned_curves import LearnedCurves
from specsim.policies.calibrators.observations import Observations

FEWEST = 20
"""Outcomes below which a position takes over the temperature of the one before."""

LOG_RANGE = (-2.0, 2.5)
"""Natural logarithm of the temperatures tried."""

TINY = 1e-12


@dataclass(kw_only=True)
class Temperature(LearnedCurves):
    """sigmoid(logit(confidence) / T(k)), with the T(k) that makes survival to k most likely, given those before it.

    It is the product that ranks and that a budget is chosen by; fitting each position alone leaves errors that
    multiply. Censored positions are left out: survival to k is known where k was accepted, or a draft up to k rejected.

    Source: the sequential calibration of DSpark (arXiv 2607.05147); temperature scaling of Guo et al. 2017.
    """

    def fit(self, seen: Observations, score: Score) -> np.ndarray:
        """[D, G] float64."""
        confidence = np.clip(np.nan_to_num(seen.raw), TINY, 1.0 - TINY)
        before = np.ones(len(confidence))
        temperature, curves = 1.0, []
        for position in range(confidence.shape[1]):
            survived = seen.accepted > position
            known = survived | ((seen.tested > seen.accepted) & (seen.accepted <= position))
            odds = logit(confidence[:, position])
            if known.sum() >= FEWEST:
                temperature = _most_likely(odds[known], before[known], survived[known])
            before = before * expit(odds / temperature)
            curves.append(expit(logit(np.clip(PROBABILITY_KNOTS, TINY, 1.0 - TINY)) / temperature))
        return np.array(curves).reshape(-1, len(PROBABILITY_KNOTS))


def _most_likely(odds: np.ndarray, before: np.ndarray, survived: np.ndarray) -> float:
    """The temperature under which these outcomes of the product are most likely."""

    def loss(log_temperature: float) -> float:
        chance = np.clip(before * expit(odds / np.exp(log_temperature)), TINY, 1.0 - TINY)
        return -float(np.mean(np.where(survived, np.log(chance), np.log1p(-chance))))

    return float(np.exp(minimize_scalar(loss, bounds=LOG_RANGE, method="bounded").x))
