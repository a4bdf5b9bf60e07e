"""Policies x loads x cost tables x seeds: run what is missing, keep each run as it finishes, put them together."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from specsim import __version__
from specsim.config import StudyConfig
from specsim.errors import InputError
from specsim.study.assemble import assemble
from specsim.study.drafters import drafter_statistics
from specsim.study.executors import executor_for
from specsim.study.findings import findings
from specsim.study.plan import FEWEST_REQUESTS, OPEN_LOOP_REQUESTS, Plan, Task
from specsim.study.record import Record, read_records, stored_keys
from specsim.study.result import Cell, StudyResult
from specsim.study.task import run_planned, run_task

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many runs are done, and of how many."""

RESULT_FILE = "study.json"


def compare(
    study: StudyConfig,
    *,
    jobs: int = 1,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    command: str = "",
) -> StudyResult:
    """Run a study.

    study       what to compare
    jobs        processes to spread the runs over
    out         folder for the runs and the result (None: kept nowhere)
    resume      take finished runs of the same kind from that folder instead of running them again
    progress    told after each run
    command     the command line that makes it again, for the report
    Raises      InputError when the study cannot be run as asked, or `out` holds runs and is not to be resumed
    """
    plan = Plan(study)
    folder = None if out is None else Path(out)
    if folder is not None and not resume and stored_keys(folder):
        raise InputError(f"{folder}: it holds runs already; continue with --resume, or give another --out")
    records = _run(plan, folder, jobs, progress or _silent)
    cells = assemble(plan, records)
    result = StudyResult(
        title=study.title,
        command=command,
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        version=__version__,
        trace=_trace_facts(plan),
        tables=[_table_facts(plan, index) for index in range(len(plan.tables))],
        engine=study.engine.model_dump(),
        workload=_workload_facts(study),
        seeds=list(study.seeds),
        cells=cells,
        drafters=drafter_statistics(plan.trace),
        findings=findings(cells),
        notes=_notes(plan, cells),
        policies={policy.label: str(policy.config) for policy in plan.policies if policy.config.label is not None},
    )
    if folder is not None:
        result.save(folder / RESULT_FILE)
    return result


def _silent(done: int, total: int) -> None:
    pass


def _run(plan: Plan, folder: Path | None, jobs: int, progress: Progress) -> list[Record]:
    """The records of all tasks; those whose key the folder holds are read, the others run."""
    keys = {task: plan.key(task) for task in plan.tasks}
    stored = set() if folder is None else stored_keys(folder) & set(keys.values())
    missing = [task for task in plan.tasks if keys[task] not in stored]
    records = [] if folder is None else read_records(folder, sorted(stored))
    progress(len(records), len(keys))
    executor = executor_for(jobs, len(missing))
    run = _runner(plan, folder, in_process=jobs <= 1 or len(missing) <= 1)
    for record in executor.map(run, missing):
        records.append(record)
        progress(len(records), len(keys))
    return records


def _runner(plan: Plan, folder: Path | None, in_process: bool) -> Callable[[Task], Record]:
    where = None if folder is None else str(folder)
    if in_process and where is None:
        return partial(run_planned, plan)
    return partial(run_task, plan.study.model_dump_json(), where)


def _trace_facts(plan: Plan) -> dict[str, Any]:
    manifest, requests = plan.trace.manifest, plan.trace.requests
    return {
        "name": manifest.name,
        "kind": manifest.kind,
        "synthetic": manifest.synthetic,
        "target": manifest.target,
        "drafters": [drafter.name for drafter in plan.trace.drafters],
        "requests": len(plan.trace),
        "domains": plan.study.domains or list(requests.domains),
        "output tokens": int(requests.num_output_tokens.sum()),
        "hardware": manifest.hardware,
        "how": manifest.how,
        "licence": manifest.licence,
    }


def _table_facts(plan: Plan, index: int) -> dict[str, Any]:
    meta = plan.tables[index].meta
    facts = meta.model_dump(
        mode="json", include={"name", "label", "model", "hardware", "engine", "dtype", "date", "source", "licence"}
    )
    prices = plan.study.draft_costs | plan.study.tables[index].draft_costs
    if prices:
        facts["what-if prices"] = [f"{drafter} at the price of {priced_as}" for drafter, priced_as in prices.items()]
    return facts | ({"remarks": list(meta.remarks)} if meta.remarks else {})


def _workload_facts(study: StudyConfig) -> dict[str, Any]:
    by_slot = f"{study.requests_per_slot} a slot, {FEWEST_REQUESTS} at least" if study.batches else OPEN_LOOP_REQUESTS
    finished = by_slot if study.requests is None else study.requests
    if study.batches:
        return {"arrivals": "closed loop", "concurrency": list(study.batches), "finished requests a run": finished}
    law = "Poisson" if study.burstiness == 1.0 else f"Gamma, burstiness {study.burstiness:g}"
    return {"arrivals": law, "requests a second": list(study.rates), "requests a run": finished}


def _notes(plan: Plan, cells: list[Cell]) -> list[str]:
    """What a reader of any number must know, each once."""
    notes = []
    manifest = plan.trace.manifest
    if manifest.synthetic:
        notes.append(f"The trace {manifest.name} is synthetic: its acceptance is made up, not recorded.")
    if plan.study.engine.prefill == "excluded":
        notes.append("Prompts cost nothing here (prefill excluded): throughput is decoding alone, TTFT queueing alone.")
    if plan.study.rates:
        notes.append("Requests arrive at their own pace, so speedups compare mean end-to-end latency, not throughput.")
    if len(plan.study.seeds) == 1:
        notes.append("One seed: there are no intervals, and nothing is said of chance.")
    for table in plan.tables:
        if not manifest.synthetic and table.meta.label != "example" and table.meta.model != manifest.target:
            what_if = f"steps of {table.meta.model}, acceptance of {manifest.target}: a what-if, not a forecast"
            notes.append(f"{table.name}: {what_if}.")
    said = dict.fromkeys((cell.table, note) for cell in cells if not cell.clairvoyant for note in cell.notes)
    return notes + [f"{table}: {note}." for table, note in said]
