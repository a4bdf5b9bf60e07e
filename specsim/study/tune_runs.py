"""The simulations behind a tuning: each runs once, is kept as it finishes, and is never run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from specsim import __version__, metrics
from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.policies.build import build_controller
from specsim.policies.config import ControllerConfig
from specsim.policies.controller import Controller
from specsim.sim import ClosedLoop, EngineConfig, simulate
from specsim.study.calibrate import halves
from specsim.study.executors import executor_for
from specsim.study.inputs import check_prices, open_table, open_trace
from specsim.study.plan import FEWEST_REQUESTS
from specsim.study.request_subset import RequestSubset
from specsim.study.tune_config import Half, TuneConfig
from specsim.trace import TraceLike

RUNS_FILE = "runs.jsonl"
METRICS = {"throughput": "steady_token_throughput", "p99_tpot": "tpot_p99"}
"""Objective -> the field of `metrics.Summary` that a run is reduced to; both are kept of every run."""


@dataclass(frozen=True)
class RunId:
    """One simulation.

    policy  the controller's configuration, as JSON
    half    of the requests
    batch   concurrency
    seed    of the request order and the policy's draws
    """

    policy: str
    half: Half
    batch: int
    seed: int


class TuneInputs:
    """What a tuning names, opened, its requests in two halves.

    config      what was asked for
    Raises      InputError when trace, table and engine do not fit together
    """

    def __init__(self, config: TuneConfig) -> None:
        self.config = config
        self.whole: TraceLike = open_trace(config.trace, config.domains)
        if len(self.whole) < 2:
            raise InputError(f"the trace has {len(self.whole)} request; tuning and validating need at least 2")
        check_prices(config.draft_costs, self.whole.drafters)
        self.table: CostTable = open_table(config.table, config.draft_costs, config.extrapolate)
        self.engine = EngineConfig(**config.engine.model_dump())
        for batch in config.batches:
            if batch > self.engine.max_num_seqs:
                raise InputError(f"batch {batch} exceeds max_num_seqs {self.engine.max_num_seqs} of the engine")
        tuning, validation = halves(len(self.whole), config.seed)
        self.halves: dict[Half, RequestSubset] = {
            "tuning": RequestSubset(self.whole, tuning),
            "validation": RequestSubset(self.whole, validation),
        }

    def controller(self, policy: ControllerConfig) -> Controller:
        """A new controller; Raises InputError when its options do not go together."""
        return build_controller(policy, self.whole.drafters, allow_lossy=self.config.allow_lossy)

    def facts(self) -> str:
        """Everything but the policy that determines a run, as JSON."""
        config = self.config
        facts = {
            "specsim": __version__,
            "trace": self.whole.manifest.model_dump(mode="json"),
            "table": self.table.meta.model_dump(mode="json"),
            "study": config.model_dump(
                mode="json",
                include={
                    "domains", "draft_costs", "requests", "requests_per_slot", "seed", "engine", "allow_lossy",
                    "extrapolate",
                },
            ),
        }  # fmt: skip
        return json.dumps(facts, sort_keys=True)

    def run(self, run: RunId) -> dict[str, Any]:
        """Simulate: the metrics by objective, and notes."""
        trace = self.halves[run.half]
        enough = max(FEWEST_REQUESTS, self.config.requests_per_slot * run.batch)
        workload = ClosedLoop(run.batch, self.config.requests or enough)
        controller = self.controller(ControllerConfig.model_validate_json(run.policy))
        done = simulate(trace, self.table, controller, self.engine, workload, seed=run.seed)
        summary = metrics.summarize(done)
        return {name: getattr(summary, field) for name, field in METRICS.items()} | {"notes": list(done.notes)}


@lru_cache(maxsize=1)
def _opened(config_json: str) -> TuneInputs:
    """The inputs of a tuning, opened once a process."""
    return TuneInputs(TuneConfig.model_validate_json(config_json))


def _run(config_json: str, run: RunId) -> tuple[RunId, dict[str, Any]]:
    return run, _opened(config_json).run(run)


class TuneRuns:
    """Runs what is missing, and remembers.

    inputs  what to run on
    jobs    processes
    folder  where every run is kept as soon as it exists (None: nowhere)
    resume  take from there what is already done
    Raises  InputError when the folder holds runs and is not to be resumed
    """

    def __init__(self, inputs: TuneInputs, jobs: int = 1, folder: Path | None = None, resume: bool = False) -> None:
        self.inputs, self.jobs = inputs, jobs
        self.notes: dict[str, None] = {}
        self._facts = inputs.facts()
        self._file = None if folder is None else folder / RUNS_FILE
        self._done: dict[str, dict[str, Any]] = {}
        if self._file is not None and self._file.exists():
            if not resume:
                raise InputError(f"{folder}: it holds runs already; continue with --resume, or give another --out")
            self._done = _read(self._file)
        elif folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def measure(
        self, policy: ControllerConfig, half: Half, seeds: Sequence[int], advance: Callable[[int], None]
    ) -> np.ndarray:
        """[seeds, batches] float64, the objective's metric of every run of one policy.

        policy      what to run
        half        of the requests
        seeds       one run each at every batch
        advance     told how many runs more are there
        Raises      InputError when the policy does not fit the trace, the table or the engine
        """
        config = self.inputs.config
        text = json.dumps(policy.model_dump(mode="json"), sort_keys=True)
        asked = [RunId(text, half, batch, seed) for seed in seeds for batch in config.batches]
        missing = [run for run in asked if self._key(run) not in self._done]
        advance(len(asked) - len(missing))
        for run, outcome in self._simulate(missing):
            self._keep(self._key(run), outcome)
            advance(1)
        outcomes = [self._done[self._key(run)] for run in asked]
        self.notes |= dict.fromkeys(note for outcome in outcomes for note in outcome["notes"])
        values = np.array([outcome[config.objective] for outcome in outcomes], dtype=np.float64)
        return values.reshape(len(seeds), len(config.batches))

    def _simulate(self, missing: Sequence[RunId]) -> Iterable[tuple[RunId, dict[str, Any]]]:
        if self.jobs <= 1 or len(missing) <= 1:
            return ((run, self.inputs.run(run)) for run in missing)
        run = partial(_run, self.inputs.config.model_dump_json())
        return executor_for(self.jobs, len(missing)).map(run, missing)

    def _key(self, run: RunId) -> str:
        """Hash of everything that determines the run."""
        parts = [self._facts, run.policy, run.half, run.batch, run.seed]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def _keep(self, key: str, outcome: dict[str, Any]) -> None:
        self._done[key] = outcome
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, **outcome}) + "\n")


def _read(file: Path) -> dict[str, dict[str, Any]]:
    """The runs of a file; a last line that a kill cut short is cut off."""
    try:
        content = file.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            file.write_bytes(whole)
    except OSError as error:
        raise InputError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    done = {}
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            outcome = json.loads(line)
            done[outcome.pop("key")] = {name: outcome[name] for name in (*METRICS, "notes")}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{file}, line {number}: not a run of a tuning; remove the line or the file") from None
    return done
