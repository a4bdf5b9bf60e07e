"""One run on disk."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from specsim import metrics
from specsim.sim import simulate
from specsim.study.plan import Plan
from specsim.study.run_folder import run_facts, write_run
from specsim.telemetry import REQUEST_DTYPE
from specsim.trace.steps import read_steps


@pytest.fixture
def run(study):
    plan = Plan(study())
    return simulate(
        plan.trace, plan.tables[0], plan.controller(4), plan.engine, plan.workload(plan.tasks[0]), record_steps=True
    )


def test_requests_come_with_their_finish_reason_by_name(run, tmp_path):
    write_run(run, metrics.summarize(run), tmp_path)
    table = pq.read_table(tmp_path / "requests.parquet")
    assert table.column_names == list(REQUEST_DTYPE.names)
    assert set(table.column("finish_reason").to_pylist()) <= {"stop", "length"}
    assert table.column("num_output_tokens").to_pylist() == run.requests["num_output_tokens"].tolist()


def test_steps_read_as_a_trace_s_steps(run, tmp_path):
    files = write_run(run, metrics.summarize(run), tmp_path)
    steps = read_steps(tmp_path / "steps.parquet", run.drafters)
    assert steps.tobytes() == run.steps.tobytes()
    assert [file.name for file in files] == ["summary.json", "requests.parquet", "steps.parquet"]


def test_a_run_that_kept_no_steps_writes_none(run, tmp_path):
    run.steps = None
    assert len(write_run(run, metrics.summarize(run), tmp_path)) == 2
    assert not (tmp_path / "steps.parquet").exists()


def test_facts_are_json_with_null_for_the_unknown(run):
    facts = json.loads(json.dumps(run_facts(run, metrics.summarize(run)), allow_nan=False))
    assert facts["policy"] == "dcut@ucb1"
    assert facts["metrics"]["goodput"] is None
    assert facts["metrics"]["num_requests"] == 16
