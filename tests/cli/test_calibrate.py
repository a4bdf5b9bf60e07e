"""`specsim calibrate`."""

import json

import pytest

from specsim.cli.main import run
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace


@pytest.fixture
def folder(tmp_path):
    drafter = SyntheticDrafter("block", mean_acceptance_length=3.0, max_depth=4, overconfidence=3.0)
    config = SyntheticConfig("cli", (drafter,), num_requests=6, num_output_tokens=(100, 120))
    SyntheticTrace(config).write(tmp_path / "trace")
    return tmp_path / "trace"


def test_it_shows_errors_before_and_after_and_writes_the_state(folder, tmp_path, capsys):
    assert run(["calibrate", "--trace", str(folder), "--drafter", "block", "--out", str(tmp_path / "state.json")]) == 0
    shown = capsys.readouterr().out
    assert "fitted on 3 requests, judged on the 3 others" in shown
    assert max(len(line) for line in shown.splitlines() if "state" not in line) <= 80
    assert list(json.loads((tmp_path / "state.json").read_text())) == ["block"]


def test_json_is_the_same_numbers(folder, capsys):
    assert run(["calibrate", "--trace", str(folder), "--drafter", "block", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["position"] for row in printed["positions"]] == [1, 2, 3, 4]
    assert all(row["ece_after"] < row["ece_before"] for row in printed["positions"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--drafter", "none"], "drafter 'none' is not in the trace"),
        (["--drafter", "block", "--calibrator", "magic"], "calibrator 'magic': allowed"),
        (["--drafter", "block", "--score", "entropy"], "--score 'entropy': allowed"),
        (["--drafter", "block", "--out", "/no/such/folder/x.json"], "must be a file in a folder that exists"),
    ],
)
def test_bad_input_is_one_line(folder, arguments, message, capsys):
    assert run(["calibrate", "--trace", str(folder), *arguments]) == 2
    complaint = capsys.readouterr().err
    assert message in complaint
    assert complaint.count("\n") == 1
