"""One run on disk: its requests and steps as Parquet, its metrics as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specsim.metrics import Summary
from specsim.telemetry import FINISH_REASONS, REQUEST_DTYPE, Run
from specsim.trace.steps import steps_table


def write_run(run: Run, summary: Summary, folder: Path) -> list[Path]:
    """Write `summary.json`, `requests.parquet` and, where steps were kept, `steps.parquet`.

    folder      made if needed; files of the same names are replaced
    returns     the files
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "summary.json", folder / "requests.parquet"]
    files[0].write_text(json.dumps(run_facts(run, summary), indent=1, allow_nan=False) + "\n")
    pq.write_table(requests_table(run), files[1])
    if run.steps is not None:
        files.append(folder / "steps.parquet")
        pq.write_table(steps_table(run.steps), files[-1])
    return files


def requests_table(run: Run) -> pa.Table:
    """The finished requests, one row each, in the order they finished; finish reasons by name."""
    columns: dict[str, Any] = {name: run.requests[name] for name in REQUEST_DTYPE.names or ()}
    columns["finish_reason"] = [FINISH_REASONS[code] for code in run.requests["finish_reason"].tolist()]
    return pa.table(columns)


def run_facts(run: Run, summary: Summary) -> dict[str, Any]:
    """What the run was and what came out, ready for JSON: null where a metric is unknown."""
    metrics = {name: value if math.isfinite(value) else None for name, value in dataclasses.asdict(summary).items()}
    return {
        "policy": run.label,
        "drafters": [drafter.name for drafter in run.drafters],
        "seed": run.seed,
        "concurrency": run.concurrency,
        "num_replicas": run.num_replicas,
        "lossy_reason": run.lossy_reason,
        "clairvoyant": run.clairvoyant,
        "notes": list(run.notes),
        "metrics": metrics,
    }
