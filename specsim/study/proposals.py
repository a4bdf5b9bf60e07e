"""Which combinations of options to try next."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Protocol

import optuna
from optuna.distributions import BaseDistribution

from specsim.study.search_space import Dimension, Point, size


class Proposals(Protocol):
    """A stream of points that may learn from the scores of earlier ones."""

    exhaustive: bool
    """Whether every point of the space is proposed."""

    def ask(self) -> Point | None:
        """The next point; None when there is none left."""
        ...

    def tell(self, score: float | None) -> None:
        """The score of the point asked for last; None when it could not be run."""
        ...


class Grid:
    """Every point of a small space once, in the order written."""

    exhaustive = True

    def __init__(self, dimensions: Sequence[Dimension]) -> None:
        axes = [dimension.values() or [] for dimension in dimensions]
        names = [dimension.name for dimension in dimensions]
        self._points: Iterator[Point] = (dict(zip(names, values, strict=True)) for values in itertools.product(*axes))

    def ask(self) -> Point | None:
        """The next point; None when there is none left."""
        return next(self._points, None)

    def tell(self, score: float | None) -> None:
        """Nothing to learn."""


class Sampled:
    """Tree-structured Parzen estimator: looks where good points are dense and bad ones rare.

    dimensions  the space
    seed        of the sampler; the same scores lead to the same points
    maximize    whether a higher score is better
    start       a point whose score is known, and the score (None: there is none)

    Source: Bergstra, Bardenet, Bengio and Kégl, Algorithms for Hyper-Parameter Optimization, 2011; Optuna's sampler.
    """

    exhaustive = False

    def __init__(
        self, dimensions: Sequence[Dimension], seed: int, maximize: bool, start: tuple[Point, float] | None
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        directions = optuna.study.StudyDirection
        direction = directions.MAXIMIZE if maximize else directions.MINIMIZE
        self._space: dict[str, BaseDistribution] = {d.name: d.distribution for d in dimensions}
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed), direction=direction)
        self._asked: optuna.Trial | None = None
        if start is not None:
            point, score = start
            self._study.add_trial(optuna.trial.create_trial(params=point, distributions=self._space, value=score))

    def ask(self) -> Point | None:
        """The next point; it may be one that was proposed before."""
        self._asked = self._study.ask(self._space)
        return dict(self._asked.params)

    def tell(self, score: float | None) -> None:
        """Learn from the point asked for last."""
        assert self._asked is not None
        if score is None:
            self._study.tell(self._asked, state=optuna.trial.TrialState.PRUNED)
        else:
            self._study.tell(self._asked, score)


def proposals(
    dimensions: Sequence[Dimension], trials: int, seed: int, maximize: bool, start: tuple[Point, float] | None
) -> Proposals:
    """Every point where there are no more than trials, for sampling would repeat some and miss others; else a sampler.

    dimensions  the space
    trials      most points to try, the start included
    seed, maximize, start   see `Sampled`
    """
    points = size(dimensions)
    if points is not None and points + (start is None) <= trials:
        return Grid(dimensions)
    return Sampled(dimensions, seed, maximize, start)
