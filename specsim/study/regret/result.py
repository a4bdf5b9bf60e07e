"""What a regret study found: the one thing that the terminal, the page and JSON readers are given."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specsim.errors import InputError

SCHEMA_VERSION = 1
"""Of the JSON file; a reader refuses any other."""

Span = tuple[float, float]

INTERVALS = ("regret_interval", "seconds_interval")
"""Fields that may be unknown, and are null in JSON then."""


@dataclass(frozen=True)
class PolicyRegret:
    """One policy in one environment, all seeds together.

    environment             name
    policy                  the policy's text
    regret                  mean over seeds of the dynamic pseudo-regret: expected acceptance lost in T steps against
                            the best arm of each step
    regret_sd               standard deviation over seeds
    regret_interval         90 % bootstrap interval of the mean (NaN where it is unknown, here and below)
    regret_band             5 % and 95 % quantiles over seeds
    static_regret           the same against the best fixed arm in hindsight; below 0 where following changes pays
    share_of_oracle         acceptance collected / that of the best arm of each step
    share_of_best_fixed     acceptance collected / that of the best fixed arm
    seconds_regret          mean seconds lost, switching included, against the fastest arm of each step
    seconds_interval        90 % bootstrap interval of that mean
    switches                mean number of steps whose arm was not the one before
    arm_share               share of the steps by arm
    curve                   by checkpoint: step, mean, low (5 %), high (95 %), and as much in seconds: seconds_mean, ...
    by_seed                 regret, static_regret, seconds_regret, switches of each seed
    full_information        whether it was told of every arm at every step, the others of the arm they pulled
    """

    environment: str
    policy: str
    regret: float
    regret_sd: float
    regret_interval: Span
    regret_band: Span
    static_regret: float
    share_of_oracle: float
    share_of_best_fixed: float
    seconds_regret: float
    seconds_interval: Span
    switches: float
    arm_share: dict[str, float]
    curve: dict[str, list[float]]
    by_seed: dict[str, list[float]]
    full_information: bool = False


@dataclass(frozen=True)
class Surroundings:
    """One environment.

    name            in tables
    description     one sentence
    arms            names
    num_steps       T
    best_fixed      the best fixed arm in hindsight
    fixed_regret    what pulling it at every step would lose
    changes         steps from which on the arms are not what they were (empty when they drift at every step)
    means           [A] expected acceptance at first
    lines           lines to read a curve against, by name, at the curve's steps
    """

    name: str
    description: str
    arms: tuple[str, ...]
    num_steps: int
    best_fixed: str
    fixed_regret: float
    changes: tuple[int, ...]
    means: tuple[float, ...]
    lines: dict[str, list[float]]


@dataclass(frozen=True)
class RegretResult:
    """A whole regret study.

    title, command, created_at, version     as in specsim.study.result
    seeds                                   one run of every policy and environment a seed
    environments, regrets                   in the order asked for
    findings                                sentences
    notes                                   what a reader must know
    """

    title: str
    command: str
    created_at: str
    version: str
    seeds: list[int]
    environments: list[Surroundings]
    regrets: list[PolicyRegret]
    findings: list[str]
    notes: list[str]

    @property
    def policies(self) -> tuple[str, ...]:
        """Every policy, in order."""
        return tuple(dict.fromkeys(found.policy for found in self.regrets))

    def of(self, environment: str) -> list[PolicyRegret]:
        """What was found in one environment."""
        return [found for found in self.regrets if found.environment == environment]

    def least(self, environment: str) -> PolicyRegret:
        """The policy that loses least of those that are told of their own arm alone (of all, where there is none)."""
        own = self.of(environment)
        return min([found for found in own if not found.full_information] or own, key=lambda found: found.regret)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row a run: environment, policy, seed, and what it lost."""
        for found in self.regrets:
            for index, seed in enumerate(self.seeds):
                own = {name: values[index] for name, values in found.by_seed.items()}
                yield {"environment": found.environment, "policy": found.policy, "seed": seed} | own

    def to_json(self) -> str:
        """The study as JSON."""
        document = dataclasses.asdict(self)
        for found in document["regrets"]:
            found |= {name: [end if math.isfinite(end) else None for end in found[name]] for name in INTERVALS}
        return json.dumps({"schema_version": SCHEMA_VERSION, **document}, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write the study as one JSON file, whole or not at all."""
        _write(Path(path), lambda partial: partial.write_text(self.to_json() + "\n"))

    def save_rows(self, path: str | Path) -> None:
        """Write one row a run as Parquet, whole or not at all."""
        _write(Path(path), lambda partial: pq.write_table(pa.Table.from_pylist(list(self.rows())), partial))

    @classmethod
    def load(cls, path: str | Path) -> RegretResult:
        """Read what `save` wrote.

        Raises  InputError when the file is missing, is no JSON, or is not a regret study of this schema version
        """
        try:
            document = json.loads(Path(path).read_text())
        except OSError as error:
            raise InputError(f"cannot read regret study {path}: {error.strerror}") from error
        except ValueError as error:
            raise InputError(f"regret study {path} is not JSON: {error}") from error
        version = document.pop("schema_version", None) if isinstance(document, dict) else None
        if version != SCHEMA_VERSION:
            raise InputError(f"regret study {path} has schema version {version}; this specsim reads {SCHEMA_VERSION}")
        try:
            environments = [_surroundings(found) for found in document.pop("environments")]
            regrets = [_regret(found) for found in document.pop("regrets")]
            return cls(environments=environments, regrets=regrets, **document)
        except (KeyError, TypeError) as error:
            raise InputError(f"regret study {path} is not a regret study: {error}") from error


def _write(target: Path, write: Any) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    write(partial)
    os.replace(partial, target)


def _surroundings(document: dict[str, Any]) -> Surroundings:
    tuples = {name: tuple(document[name]) for name in ("arms", "changes", "means")}
    return Surroundings(**(document | tuples))


def _regret(document: dict[str, Any]) -> PolicyRegret:
    ends = {name: tuple(math.nan if end is None else end for end in document[name]) for name in INTERVALS}
    return PolicyRegret(**(document | ends | {"regret_band": tuple(document["regret_band"])}))
