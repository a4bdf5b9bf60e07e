"""Tunes a policy's options on half of a trace's requests, and says what the other half makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from specsim import __version__
from specsim.errors import InputError
from specsim.policies.config import ControllerConfig, parse
from specsim.policies.controller_file import write_controller_file
from specsim.study.plan import AUTOREGRESSIVE
from specsim.study.proposals import proposals
from specsim.study.search_space import Dimension, Point, default_point, search_space, with_options
from specsim.study.tune_config import Half, TuneConfig
from specsim.study.tune_result import Gain, Trial, TuneResult, paired_gain
from specsim.study.tune_runs import TuneInputs, TuneRuns

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many runs are done, and of how many."""

CONTROLLER_FILE = "controller.json"
RESULT_FILE = "tune.json"
MOST_REPEATS = 30
"""A search ends when so many proposals in a row were tried before: there is hardly anything new."""


def tune(
    config: TuneConfig,
    progress: Progress | None = None,
    *,
    jobs: int = 1,
    out: str | Path | None = None,
    resume: bool = False,
    command: str = "",
) -> TuneResult:
    """Find better options, and say how much better.

    config      what to tune, on what
    progress    told after each run
    jobs        processes to spread the runs of a trial over
    out         folder for the runs, the controller file and the result (None: kept nowhere)
    resume      take finished runs from that folder; the search then goes the way it would have gone
    command     the command line that makes it again
    Raises      InputError when the default itself cannot run, or an option or value does not exist
    """
    folder = None if out is None else Path(out)
    inputs = TuneInputs(config)
    default = inputs.controller(config.policy)
    space = search_space(config.search, config.policy, default)
    assert default.config is not None
    search = Search(TuneRuns(inputs, jobs, folder, resume), space, progress or _silent)
    search.run(default.config, default_point(space, default))
    result = _result(search, inputs, command)
    if folder is not None:
        write_controller_file(folder / CONTROLLER_FILE, result.config, tuned=result.provenance())
        (folder / RESULT_FILE).write_text(result.to_json() + "\n", encoding="utf-8")
    return result


def _silent(done: int, total: int) -> None:
    pass


class Search:
    """The trials of a tuning, one after the other; `run` fills `trials` and `configs`.

    runs        where they are simulated
    space       the options
    progress    told after each run
    """

    def __init__(self, runs: TuneRuns, space: Sequence[Dimension], progress: Progress) -> None:
        self.runs, self.space, self.config = runs, space, runs.inputs.config
        self.trials: list[Trial] = []
        self.configs: list[ControllerConfig] = []
        self.exhaustive = False
        self._progress, self._num_done, self._num_runs = progress, 0, 0

    def run(self, default: ControllerConfig, start: Point | None) -> None:
        """Try the default, then what is proposed.

        default     as canonical configuration
        start       where it lies in the space (None: outside)
        """
        config = self.config
        self._num_runs = len(config.batches) * (config.trials * len(config.seeds) + 4 * len(config.validation_seeds))
        self._try(default, dict(start or {}))
        score = self.trials[0].score
        if score is None:
            raise InputError(f"the policy to start from cannot run: {self.trials[0].pruned}")
        known = None if start is None else (start, score)
        source = proposals(self.space, config.trials, config.seed, self._maximize, known)
        self.exhaustive = source.exhaustive
        seen = {_identity(default): 0}
        repeats = 0
        while len(self.trials) < config.trials and repeats < MOST_REPEATS and (point := source.ask()) is not None:
            candidate = self._canonical(with_options(default, self.space, point))
            # A depth left out and the deepest written out are one point under two configurations.
            number = 0 if point == start else seen.setdefault(_identity(candidate), len(self.trials))
            repeats = repeats + 1 if number < len(self.trials) else 0
            if not repeats:
                self._try(candidate, {d.name: d.written(point[d.name]) for d in self.space})
            source.tell(self.trials[number].score)

    @property
    def best(self) -> int:
        """Number of the best trial; the earliest of equals, so that the default yields only to something better."""
        sign = 1.0 if self._maximize else -1.0
        ran = [trial for trial in self.trials if trial.score is not None]
        return max(ran, key=lambda trial: sign * (trial.score or 0.0)).number

    def scores(self, policy: ControllerConfig, half: Half, seeds: Sequence[int]) -> np.ndarray:
        """[seeds, batches] float64: speedups over autoregressive decoding on the same seeds, or seconds.

        Raises  InputError when the policy does not fit, or the objective is unknown
        """
        values = self.runs.measure(policy, half, seeds, self._advance)
        if self._maximize:
            values = values / self.runs.measure(parse(AUTOREGRESSIVE), half, seeds, lambda runs: None)
        if not np.isfinite(values).all():
            raise InputError(f"{self.config.objective} is unknown: no finished request has a second token")
        return values

    def finished(self) -> None:
        """Say that nothing is left, whatever was spared."""
        self._progress(self._num_runs, self._num_runs)

    @property
    def _maximize(self) -> bool:
        return self.config.objective == "throughput"

    def _canonical(self, policy: ControllerConfig) -> ControllerConfig:
        """The same controller always under the same configuration; as it is where it cannot be built."""
        try:
            return self.runs.inputs.controller(policy).config or policy
        except InputError:
            return policy

    def _try(self, policy: ControllerConfig, options: Point) -> None:
        """Run one trial; what does not go together, or lies outside the table, is pruned."""
        score, pruned = None, None
        try:
            score = float(over_batches(self.scores(policy, "tuning", self.config.seeds)).mean())
        except InputError as error:
            pruned = str(error)
        self.trials.append(Trial(len(self.trials), str(policy), options, score, pruned))
        self.configs.append(policy)

    def _advance(self, runs: int) -> None:
        self._num_done = min(self._num_done + runs, self._num_runs)
        self._progress(self._num_done, self._num_runs)


def over_batches(scores: np.ndarray) -> np.ndarray:
    """[seeds] float64, the geometric mean over batches, so that a doubling counts alike at every batch.

    scores  [seeds, batches] float64, above 0
    """
    mean: np.ndarray = np.exp(np.log(scores).mean(axis=1))
    return mean


def _identity(policy: ControllerConfig) -> str:
    return policy.model_dump_json(exclude={"label"})


def _result(search: Search, inputs: TuneInputs, command: str) -> TuneResult:
    """Compare the best trial with the default on both halves."""
    best, config = search.trials[search.best], search.config
    tuned = search.configs[best.number]
    gains: dict[Half, Gain] = {}
    halves: tuple[Half, Half] = ("tuning", "validation")
    for half in halves:
        pair = [search.scores(policy, half, config.validation_seeds) for policy in (search.configs[0], tuned)]
        gains[half] = paired_gain(config.objective, over_batches(pair[0]), over_batches(pair[1]))
    by_batch = [paired_gain(config.objective, pair[0][:, b], pair[1][:, b]) for b in range(len(config.batches))]
    search.finished()
    return TuneResult(
        command=command,
        version=__version__,
        trace=inputs.whole.manifest.name,
        table=inputs.table.name,
        objective=config.objective,
        batches=config.batches,
        seeds=config.seeds,
        validation_seeds=config.validation_seeds,
        seed=config.seed,
        num_requests={half: len(part) for half, part in inputs.halves.items()},
        default=str(search.configs[0]),
        tuned=best.policy,
        config=_labelled(search, best.number).model_dump(mode="json", exclude={"state"}),
        searched={dimension.name: dimension.text for dimension in search.space},
        default_options=search.trials[0].options,
        tuned_options=best.options,
        exhaustive=search.exhaustive,
        trials=search.trials,
        gains=gains,
        by_batch=by_batch,
        lossy_reason=inputs.controller(tuned).lossy_reason,
        notes=_notes(search, inputs),
    )


def _labelled(search: Search, number: int) -> ControllerConfig:
    """The tuned configuration under a name that fits a table; the default keeps its own."""
    tuned = search.configs[number]
    if number == 0:
        return tuned
    what = search.configs[0].label or str(search.configs[0])
    return tuned.model_copy(update={"label": f"{what} tuned for {search.config.objective}"})


def _notes(search: Search, inputs: TuneInputs) -> list[str]:
    """What a reader of any number must know."""
    notes = []
    manifest, table = inputs.whole.manifest, inputs.table
    if manifest.synthetic:
        notes.append(f"The trace {manifest.name} is synthetic: its acceptance is made up, not recorded.")
    elif table.meta.label != "example" and table.meta.model != manifest.target:
        notes.append(f"Steps of {table.meta.model}, acceptance of {manifest.target}: a what-if, not a forecast.")
    requests = len(inputs.halves["validation"])
    notes.append(f"The interval is over orders and draws on these {requests} requests, not over other requests.")
    if search.config.engine.prefill == "excluded":
        notes.append("Prompts cost nothing here (prefill excluded).")
    pruned = [trial for trial in search.trials if trial.pruned is not None]
    if pruned:
        notes.append(
            f"{len(pruned)} of {len(search.trials)} trials could not run, the first because {pruned[0].pruned}."
        )
    return [*notes, *(f"{table.name}: {note}." for note in search.runs.notes)]
