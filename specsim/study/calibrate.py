"""Fits a calibrator on half of a trace's requests and says how right the confidences of the other half become."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.core import Draft, Score
from specsim.errors import InputError
from specsim.policies.build import CALIBRATORS
from specsim.policies.calibrators.curves import knots_of, prior_curve, read_curves
from specsim.policies.calibrators.learned_curves import LearnedCurves
from specsim.policies.calibrators.observations import Observations
from specsim.trace import TraceLike
from specsim.trace.statistics import area_under_curve, reliability

SPLIT_STREAM = 4
"""The random stream of a seed that halves a trace's requests."""


@dataclass(frozen=True)
class PositionFit:
    """One draft position, on the held-out requests.

    position            k, from 1
    num_tested          drafts that met an accept test there
    ece_before, after   expected calibration error of the chance of acceptance, given those before were accepted
    auc_before, after   how well it tells accepted from rejected drafts
    survival_before, after   expected calibration error of the product up to k, the score that ranks
    """

    position: int
    num_tested: int
    ece_before: float
    ece_after: float
    auc_before: float
    auc_after: float
    survival_before: float
    survival_after: float


@dataclass(frozen=True)
class CalibrationFit:
    """What a calibrator makes of one drafter's score.

    calibrator  the fitted one
    score       what it reads
    drafter     whose
    positions   position by position, on requests it was not fitted on
    num_fitted, num_held_out   requests
    """

    calibrator: LearnedCurves
    score: Score
    drafter: str
    positions: tuple[PositionFit, ...]
    num_fitted: int
    num_held_out: int


def halves(num_requests: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a trace in two disjoint halves, the first the larger where the number is odd."""
    order = np.random.default_rng([seed, SPLIT_STREAM]).permutation(num_requests)
    middle = -(-num_requests // 2)
    return np.sort(order[:middle]), np.sort(order[middle:])


def observations(trace: TraceLike, drafter: int, requests: np.ndarray, score: Score) -> Observations:
    """Every accept test of some requests, at each output position behind the first token.

    trace       recorded or synthetic
    drafter     index of the arm
    requests    [N] rows of the trace
    score       the score to calibrate
    """
    raw, tested, accepted = [], [], []
    for index in requests.tolist():
        blocks = trace.blocks(index, drafter)
        raw.append(blocks.scores[score][1:])
        accepted.append(blocks.num_accepted[1:])
        tested.append(np.minimum(blocks.num_accepted + 1, np.minimum(blocks.num_verified, blocks.num_drafts))[1:])
    return Observations(np.concatenate(raw), np.concatenate(tested), np.concatenate(accepted))


def calibrate(trace: TraceLike, drafter: str, calibrator: str, score: Score, seed: int = 0) -> CalibrationFit:
    """Fit on one half, judge on the other.

    trace       recorded or synthetic
    drafter     name of the arm
    calibrator  name of a learning calibrator
    score       the score it reads
    seed        of the split

    Raises InputError for a drafter, calibrator or score that does not fit
    """
    arm = _arm(trace, drafter, score)
    fitted = _calibrator(calibrator, score)
    train, test = halves(len(trace), seed)
    if not len(test):
        raise InputError(f"the trace has {len(trace)} request; fitting and judging need at least 2")
    fitted.fit_offline(drafter, score, observations(trace, arm, train, score))
    seen = observations(trace, arm, test, score)
    spec = trace.drafters[arm]
    before = _prior(seen.raw, score)
    after = fitted.calibrate(Draft(spec, seen.tested, {score: seen.raw}), score)
    positions = tuple(_position(k, seen, before, after) for k in range(spec.max_depth))
    return CalibrationFit(fitted, score, drafter, positions, len(train), len(test))


def _prior(raw: np.ndarray, score: Score) -> np.ndarray:
    """[N, D] what the score is taken for without a calibrator."""
    curves = np.repeat(prior_curve(score)[None], raw.shape[1], axis=0)
    chance: np.ndarray = read_curves(raw, knots_of(score), curves, np)
    return chance


def _position(k: int, seen: Observations, before: np.ndarray, after: np.ndarray) -> PositionFit:
    tested = seen.tested > k
    accepted = seen.accepted > k
    # Survival to k is known where k was accepted, or some draft up to k was rejected.
    known = accepted | ((seen.tested > seen.accepted) & (seen.accepted <= k))
    errors = []
    for chance in (before, after):
        survival = np.clip(np.prod(chance[known, : k + 1], axis=1), 0.0, 1.0)
        errors.append(reliability(survival, accepted[known]).expected_calibration_error)
    return PositionFit(
        position=k + 1,
        num_tested=int(tested.sum()),
        ece_before=reliability(before[tested, k], accepted[tested]).expected_calibration_error,
        ece_after=reliability(after[tested, k], accepted[tested]).expected_calibration_error,
        auc_before=area_under_curve(before[tested, k], accepted[tested]),
        auc_after=area_under_curve(after[tested, k], accepted[tested]),
        survival_before=errors[0],
        survival_after=errors[1],
    )


def _arm(trace: TraceLike, drafter: str, score: Score) -> int:
    names = [spec.name for spec in trace.drafters]
    if drafter not in names:
        raise InputError(f"drafter {drafter!r} is not in the trace; it has: {', '.join(names)}")
    arm = names.index(drafter)
    offered = trace.drafters[arm].scores
    if score not in offered:
        raise InputError(f"drafter {drafter} has no score {score!r}; it offers: {', '.join(offered)}")
    return arm


def _calibrator(name: str, score: Score) -> LearnedCurves:
    learning = [known for known, kind in CALIBRATORS.items() if issubclass(kind, LearnedCurves)]
    if name not in learning:
        raise InputError(f"calibrator {name!r}: allowed: {', '.join(learning)}")
    fitted: LearnedCurves = CALIBRATORS[name]()
    if score not in fitted.scores:
        raise InputError(f"calibrator {name} cannot read {score!r}; it reads: {', '.join(fitted.scores)}")
    return fitted
