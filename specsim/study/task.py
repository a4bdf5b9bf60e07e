"""Runs one task of a study, in whatever process it lands in."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from specsim import metrics
from specsim.config import StudyConfig
from specsim.sim import simulate
from specsim.study.plan import Plan, Task
from specsim.study.record import Record, write_record
from specsim.telemetry import Run

ITL_FRACTIONS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
MOST_POINTS = 300


@lru_cache(maxsize=1)
def _opened(study_json: str) -> Plan:
    """The plan of a study, opened once a process."""
    return Plan(StudyConfig.model_validate_json(study_json))


def run_task(study_json: str, folder: str | None, task: Task) -> Record:
    """Run one task.

    study_json  the study, as JSON: what a process needs to open the rest itself
    folder      where the record is kept as soon as it exists (None: nowhere)
    task        what to run
    """
    record = run_planned(_opened(study_json), task)
    if folder is not None:
        write_record(Path(folder), record)
    return record


def run_planned(plan: Plan, task: Task) -> Record:
    """Run one task of an open plan with a new controller."""
    run = simulate(
        plan.trace,
        plan.tables[task.table],
        plan.controller(task.policy),
        plan.engine,
        plan.workload(task),
        seed=task.seed,
        record_steps=plan.records_steps(task),
    )
    slo = plan.study.slo
    bounds = {} if slo is None else {name: bound for name, bound in slo.model_dump().items() if bound is not None}
    names = [*(drafter.name for drafter in run.drafters), "none"]
    return Record(
        key=plan.key(task),
        table=plan.tables[task.table].name,
        policy=plan.policies[task.policy].label,
        batch=task.batch,
        rate=task.rate,
        seed=task.seed,
        summary=metrics.summarize(run, None if slo is None else metrics.ServiceLevel(**bounds)),
        num_decoded=run.totals.num_emitted,
        counts=run.counts.sum(axis=0),
        drafted_request_steps=int(run.drafted[:, 1:].sum()),
        arm_share=dict(zip(names, metrics.arm_share(run.arm_steps).tolist(), strict=True)),
        itl_seconds=[run.itl.quantile(fraction) for fraction in ITL_FRACTIONS],
        series=time_series(run),
        lossy_reason=run.lossy_reason,
        clairvoyant=run.clairvoyant,
        notes=run.notes,
    )


def time_series(run: Run) -> dict[str, list[float]]:
    """The run's decode steps in at most 300 bins of equally many steps; empty when steps were not kept.

    started_at          start of the bin's first step, seconds
    budget_ratio        verified / drafted in the bin, NaN where nothing was drafted
    emitted_per_request tokens a request-step
    arm                 the arm with most steps of the bin, -1 for the plain step
    cumulative_tokens   tokens that decode steps emitted before the bin
    """
    if run.steps is None:
        return {}
    steps = run.steps[run.steps["batch"] > 0]
    if not len(steps):
        return {}
    starts = np.unique(np.linspace(0, len(steps), min(MOST_POINTS, len(steps)), endpoint=False).astype(np.int64))
    sums = {
        name: np.add.reduceat(steps[name], starts) for name in ("num_drafted", "num_verified", "num_emitted", "batch")
    }
    drafted = sums["num_drafted"]
    budget = np.where(drafted > 0, sums["num_verified"] / np.maximum(drafted, 1), np.nan)
    return {
        "started_at": steps["started_at"][starts].tolist(),
        "budget_ratio": budget.tolist(),
        "emitted_per_request": (sums["num_emitted"] / sums["batch"]).tolist(),
        "arm": [float(_most_common(part)) for part in np.split(steps["arm"], starts[1:])],
        "cumulative_tokens": (np.cumsum(sums["num_emitted"]) - sums["num_emitted"]).astype(float).tolist(),
    }


def _most_common(arms: np.ndarray) -> int:
    return int(np.bincount(arms + 1).argmax()) - 1
