"""What a tuning found: the tuned controller, every trial, and the gain on both halves in numbers and words."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import JsonValue

from specsim.study.bootstrap import paired_interval
from specsim.study.tune_config import Half, Objective


@dataclass(frozen=True)
class Trial:
    """One combination.

    number      0 is the untuned default
    policy      the controller's text
    options     the searched options, as tried
    score       mean over the seeds, on the tuning half: speedup, or seconds (None: pruned)
    pruned      why it was not run
    """

    number: int
    policy: str
    options: dict[str, JsonValue]
    score: float | None
    pruned: str | None = None


@dataclass(frozen=True)
class Gain:
    """The tuned controller against the default, paired by seed.

    default, tuned  mean over the seeds: speedup, or seconds
    gain            mean relative improvement; above 0 is better whatever the objective
    low, high       90 % bootstrap interval of it
    """

    default: float
    tuned: float
    gain: float
    low: float
    high: float

    @property
    def within_noise(self) -> bool:
        """Whether the interval includes 0."""
        return not (self.low > 0.0 or self.high < 0.0)


def paired_gain(objective: Objective, default: np.ndarray, tuned: np.ndarray) -> Gain:
    """Compare two controllers on the same seeds.

    objective   throughput: gain is tuned / default - 1; p99_tpot: 1 - tuned / default
    default     [seeds] float64
    tuned       [seeds] float64
    """
    ratio = tuned / default
    gains = ratio - 1.0 if objective == "throughput" else 1.0 - ratio
    low, high = paired_interval(gains)
    return Gain(float(default.mean()), float(tuned.mean()), float(gains.mean()), low, high)


@dataclass(frozen=True)
class TuneResult:
    """A finished tuning.

    command, version    what makes it again
    trace, table        names
    objective, batches, seeds, validation_seeds, seed     as asked for
    num_requests        of each half
    default             text of the controller it began with
    tuned               text of the best one
    config              configuration of the best one, JSON-able
    searched            option -> its values as written
    default_options     the searched options of the default
    tuned_options       the searched options of the best
    exhaustive          whether every point of the space was tried
    trials              in order
    gains               by half: on the tuning half the tuned one was chosen, so its gain there flatters it
    by_batch            validation half, one for each of `batches`
    lossy_reason        why the tuned controller changes the output's law (None: it does not)
    notes               what a reader must know
    """

    command: str
    version: str
    trace: str
    table: str
    objective: Objective
    batches: list[int]
    seeds: list[int]
    validation_seeds: list[int]
    seed: int
    num_requests: dict[Half, int]
    default: str
    tuned: str
    config: dict[str, Any]
    searched: dict[str, str]
    default_options: dict[str, JsonValue]
    tuned_options: dict[str, JsonValue]
    exhaustive: bool
    trials: list[Trial]
    gains: dict[Half, Gain]
    by_batch: list[Gain]
    lossy_reason: str | None
    notes: list[str]

    @property
    def unchanged(self) -> bool:
        """Whether nothing beat the default."""
        return self.tuned == self.default

    @property
    def verdict(self) -> list[str]:
        """What it means, in sentences."""
        return _verdict(self)

    def provenance(self) -> dict[str, Any]:
        """What a controller file says of its origin."""
        validated = self.gains["validation"]
        return {
            "from": self.default,
            "objective": self.objective,
            "trace": self.trace,
            "table": self.table,
            "batches": self.batches,
            "searched": self.searched,
            "trials": len(self.trials),
            "seed": self.seed,
            "tuning_gain": self.gains["tuning"].gain,
            "validated_gain": validated.gain,
            "validated_interval": [validated.low, validated.high],
            "within_noise": validated.within_noise,
            "command": self.command,
            "specsim": self.version,
        }

    def to_json(self) -> str:
        """Everything, with the verdict."""
        document = dataclasses.asdict(self) | {
            "within_noise": self.gains["validation"].within_noise,
            "verdict": self.verdict,
        }
        return json.dumps(document, indent=1, allow_nan=False)


def _verdict(result: TuneResult) -> list[str]:
    tuning, validation = result.gains["tuning"], result.gains["validation"]
    what = "throughput" if result.objective == "throughput" else "p99 TPOT"
    if result.unchanged:
        return [f"Nothing tried has a better {what} than the default: the tuned controller is the default."]
    interval = f"[{_signed(validation.low)}, {_signed(validation.high)}]"
    said = []
    if validation.within_noise:
        said.append(
            f"Within noise: on requests it was not tuned on, the gain in {what} is"
            f" {_signed(validation.gain)} {interval}, an interval that includes 0. Keep the default."
        )
    elif validation.gain > 0:
        said.append(f"On requests it was not tuned on, {what} is {_better(result)}: gain {interval}.")
    else:
        said.append(
            f"Worse: on requests it was not tuned on, {what} loses to the default by"
            f" {_percent(-validation.gain)} (gain {interval}). Keep the default."
        )
    if tuning.low > 0 and validation.gain < tuning.gain / 2:
        said.append(f"Overfitted: {_signed(tuning.gain)} on the half it was chosen on, more than twice what is left.")
    if result.objective == "throughput" and validation.tuned < 1.0:
        said.append(f"Even tuned it is slower than autoregressive decoding ({validation.tuned:.2f} of its throughput).")
    return said


def _better(result: TuneResult) -> str:
    gain = result.gains["validation"].gain
    how = "higher" if result.objective == "throughput" else "lower"
    return f"{_percent(gain)} {how} than the default's"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %"
