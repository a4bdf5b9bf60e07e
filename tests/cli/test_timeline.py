"""`specsim timeline`: from a trace folder to a file that a trace viewer opens."""

import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest

from specsim.telemetry import STEP_DTYPE
from specsim.trace.parquet import file_sha256
from specsim.trace.steps import steps_table
from tests.trace.traces import edit_manifest, write_small


@pytest.fixture
def with_steps(tmp_path):
    """Writes a trace of three requests whose run had so many steps of 2 ms."""

    def write(count):
        folder = write_small(tmp_path / "trace")
        steps = np.zeros(count, STEP_DTYPE)
        steps["started_at"], steps["verify_seconds"] = np.arange(count) * 0.002, 0.002
        steps["batch"], steps["depth"], steps["num_drafted"] = 3, 2, 6
        pq.write_table(steps_table(steps), folder / "steps.parquet", write_page_checksum=True)
        edit_manifest(folder, lambda m: m["files"].update({"steps.parquet": file_sha256(folder / "steps.parquet")}))
        return folder

    return write


def test_a_recorded_run_becomes_a_timeline_of_its_steps_and_arrivals(specsim, with_steps, tmp_path):
    out = tmp_path / "run.json"
    code, text, errors = specsim("timeline", with_steps(4), "--out", out)
    assert (code, errors) == (0, "")
    events = json.loads(out.read_text())["traceEvents"]
    assert f"{out}: {len(events)} events of 4 steps" in text
    steps = [event for event in events if event["ph"] == "X" and event["cat"] == "steps"]
    assert [(event["ts"], event["dur"], event["name"]) for event in steps] == [
        (2000.0 * i, 2000.0, "ngram, depth 2") for i in range(4)
    ]
    assert [event["ts"] for event in events if event["ph"] == "n"] == [0.0, 0.5e6, 1e6]


def test_a_trace_without_steps_is_refused_in_one_line(refused, with_steps, tmp_path):
    out = tmp_path / "run.json"
    assert "holds no engine steps" in refused("timeline", write_small(tmp_path / "plain"), "--out", out)
    assert "holds no engine steps" in refused("timeline", with_steps(0), "--out", out)
    assert not out.exists()


def test_a_place_that_cannot_be_written_is_refused_in_one_line(refused, with_steps, tmp_path):
    assert "is a folder; give a file" in refused("timeline", with_steps(1), "--out", tmp_path)


def test_what_is_no_regular_file_is_not_replaced(refused, with_steps, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert f"--out {pipe}: is no regular file" in refused("timeline", with_steps(4), "--out", pipe)
    assert pipe.is_fifo()


def test_a_timeline_s_folder_is_made(specsim, with_steps, tmp_path):
    code, _, _ = specsim("timeline", with_steps(4), "--out", tmp_path / "new" / "run.json")
    assert code == 0
    assert json.loads((tmp_path / "new" / "run.json").read_text())["traceEvents"]
