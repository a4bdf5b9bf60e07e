"""What a study found: the one thing that the terminal, the report and JSON readers are given."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specsim.errors import InputError

SCHEMA_VERSION = 1
"""Of the JSON file; a reader refuses any other."""


@dataclass(frozen=True)
class Cell:
    """One (cost table, batch, policy), all seeds together.

    table                       cost table's name
    batch                       concurrency of the closed loop; 0 when requests arrive at `rate`
    policy                      the controller's label
    values                      mean over the seeds of every field of `metrics.Summary`, and `speedup`
    speedup_interval            90 % paired bootstrap interval of throughput / autoregressive throughput
    difference_to_best_fixed    relative throughput difference to the best fixed policy of the same table and
                                batch in hindsight: mean, low, high (None: no fixed policy took part)
    share_of_clairvoyant        throughput / that of the clairvoyant bound (None: it took no part)
    slower_than_autoregressive  the whole of `speedup_interval` lies below 1
    not_distinguishable         1 lies inside `speedup_interval`
    acceptance_by_position      [D] survival: share of the request-steps that verified position k in which it, and so
                                all before it, was accepted
    verified_by_position        [D] share of speculative request-steps in which position k was verified
    arm_share                   share of decode steps by drafter name; `none` is the plain step
    lossy_reason                why the output law is not the target's (None: it is)
    clairvoyant                 the policy knew what would be accepted: a bound, not a choice
    notes                       what a reader must know: extrapolated costs, estimates, what-if prices
    latency                     `fraction` and `itl_seconds`: quantiles of the inter-token latency, mean over seeds
    series                      at most 300 points of the first seed: started_at, budget_ratio, emitted_per_request,
                                arm (-1: plain step), cumulative_tokens, regret_tokens (tokens behind the best fixed
                                policy's steady throughput; absent when there is none)
    best_fixed                  label of that best fixed policy (None: there is none)
    fixed                       whether the policy itself is a fixed choice
    rate                        requests a second of an open loop (0: closed loop)
    """

    table: str
    batch: int
    policy: str
    values: dict[str, float]
    speedup_interval: tuple[float, float]
    difference_to_best_fixed: tuple[float, float, float] | None
    share_of_clairvoyant: float | None
    slower_than_autoregressive: bool
    not_distinguishable: bool
    acceptance_by_position: list[float]
    verified_by_position: list[float]
    arm_share: dict[str, float]
    lossy_reason: str | None
    clairvoyant: bool
    notes: tuple[str, ...] = ()
    latency: dict[str, list[float]] = field(default_factory=dict)
    series: dict[str, list[float]] = field(default_factory=dict)
    best_fixed: str | None = None
    fixed: bool = False
    rate: float = 0.0


@dataclass(frozen=True)
class DrafterStatistics:
    """What the trace says of one drafter, whatever the policy.

    name                    the drafter
    domain                  a domain of the trace, or `all`
    mean_acceptance_length  tokens a step at full depth, bonus included, along the walk of `specsim trace info`
    survival                [D] chance that the first k drafts are all accepted
    conditional             [D] chance that draft k is accepted once those before it are
    calibration             reliability bins: bin_confidence, bin_accepted, bin_count
    ece                     expected calibration error
    auc                     area under the ROC curve of the confidence
    """

    name: str
    domain: str
    mean_acceptance_length: float
    survival: list[float]
    conditional: list[float]
    calibration: dict[str, list[float]]
    ece: float
    auc: float


@dataclass(frozen=True)
class StudyResult:
    """A whole study.

    title       what was compared
    command     the command that makes it again
    created_at  ISO 8601, UTC
    version     of specsim
    trace       manifest facts of the trace: name, kind, synthetic, target, drafters, requests
    tables      manifest facts of each cost table
    engine      engine options
    workload    workload options
    seeds       one run of each cell a seed
    cells       in the order of tables, batches, policies
    drafters    acceptance and calibration of each drafter
    findings    sentences that say who wins where
    notes       what a reader must know
    policies    by a policy's given label, its text as --policy takes it; where none is given the label says it
    """

    title: str
    command: str
    created_at: str
    version: str
    trace: dict[str, Any]
    tables: list[dict[str, Any]]
    engine: dict[str, Any]
    workload: dict[str, Any]
    seeds: list[int]
    cells: list[Cell]
    drafters: list[DrafterStatistics]
    findings: list[str]
    notes: list[str]
    policies: dict[str, str] = field(default_factory=dict)

    def rows(self) -> Iterator[tuple[str, int, list[Cell]]]:
        """The cells of one table and one load at a time, in order."""
        keys = dict.fromkeys((cell.table, cell.batch, cell.rate) for cell in self.cells)
        for table, batch, rate in keys:
            yield (
                table,
                batch,
                [cell for cell in self.cells if (cell.table, cell.batch, cell.rate) == (table, batch, rate)],
            )

    def to_json(self) -> str:
        """The study as JSON; NaN becomes null."""
        document = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)}
        return json.dumps(_without_nan(document), indent=1, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write the study as one JSON file, whole or not at all."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        partial.write_text(self.to_json() + "\n")
        os.replace(partial, target)

    @classmethod
    def load(cls, path: str | Path) -> StudyResult:
        """Read what `save` wrote.

        Raises  InputError when the file is missing, is no JSON, or is not a study of this schema version
        """
        try:
            document = json.loads(Path(path).read_text())
        except OSError as error:
            raise InputError(f"cannot read study {path}: {error.strerror}") from error
        except ValueError as error:
            raise InputError(f"study {path} is not JSON: {error}") from error
        version = document.pop("schema_version", None) if isinstance(document, dict) else None
        if version != SCHEMA_VERSION:
            raise InputError(f"study {path} has schema version {version}; this specsim reads {SCHEMA_VERSION}")
        try:
            cells = [_cell(cell) for cell in document.pop("cells")]
            drafters = [_drafter(drafter) for drafter in document.pop("drafters")]
            return cls(cells=cells, drafters=drafters, **document)
        except (KeyError, TypeError) as error:
            raise InputError(f"study {path} is not a study: {error}") from error


def _without_nan(value: Any) -> Any:
    """The same document with null for every NaN and infinity, which JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return value


def _floats(values: list[float | None]) -> list[float]:
    return [math.nan if value is None else float(value) for value in values]


def _cell(document: dict[str, Any]) -> Cell:
    restored = dict(document)
    restored["values"] = dict(zip(document["values"], _floats(list(document["values"].values())), strict=True))
    restored["speedup_interval"] = tuple(_floats(document["speedup_interval"]))
    difference = document["difference_to_best_fixed"]
    restored["difference_to_best_fixed"] = None if difference is None else tuple(_floats(difference))
    restored["notes"] = tuple(document["notes"])
    for name in ("acceptance_by_position", "verified_by_position"):
        restored[name] = _floats(document[name])
    for name in ("latency", "series"):
        restored[name] = {key: _floats(values) for key, values in document[name].items()}
    return Cell(**restored)


def _drafter(document: dict[str, Any]) -> DrafterStatistics:
    restored = dict(document)
    for name in ("survival", "conditional"):
        restored[name] = _floats(document[name])
    restored["calibration"] = {key: _floats(values) for key, values in document["calibration"].items()}
    for name in ("mean_acceptance_length", "ece", "auc"):
        restored[name] = _floats([document[name]])[0]
    return DrafterStatistics(**restored)
