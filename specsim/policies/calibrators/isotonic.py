"""The best rising curve through the accept tests, position by position."""

from __future__ import annotations

import numpy as np
from pydantic.dataclasses import dataclass
from scipy.optimize import isotonic_regression

from specsim.core import Score
from specsim.policies.calibrators.curves import knots_of, prior_curve
from specsim.policies.calibrators.learned_curves import LearnedCurves
from specsim.policies.calibrators.observations import Observations

PRIOR_TESTS = 0.25
"""Accept tests the prior is worth at each knot: it decides where nothing was tested, and soon nowhere else."""


@dataclass(kw_only=True)
class Isotonic(LearnedCurves):
    """Isotonic regression of acceptance on the score, one curve a position.

    Source: Zadrozny and Elkan, Transforming classifier scores into accurate multiclass probability estimates, 2002.
    """

    scores = ("drawn_prob", "max_prob", "shifted_prob", "margin")

    def fit(self, seen: Observations, score: Score) -> np.ndarray:
        """[D, G] float64, rising along G."""
        knots, prior = knots_of(score), prior_curve(score)
        curves = []
        for position in range(seen.raw.shape[1]):
            raw, accepted = seen.at(position)
            scores = np.concatenate([knots, raw])
            outcomes = np.concatenate([prior, accepted.astype(np.float64)])
            weights = np.concatenate([np.full(len(knots), PRIOR_TESTS), np.ones(len(raw))])
            places, where = np.unique(scores, return_inverse=True)
            weight = np.bincount(where, weights)
            mean = np.bincount(where, weights * outcomes) / weight
            rising = isotonic_regression(mean, weights=weight).x
            curves.append(np.interp(knots, places, rising))
        return np.array(curves).reshape(seen.raw.shape[1], len(knots))
