from __future__ import annotations

import json

import pytest

from specsim.cli.main import run
from specsim.trace import Trace
from tests.trace.traces import drafter, manifest, write_small


@pytest.fixture
def folder(tmp_path):
    return write_small(tmp_path / "trace")


def trace(capsys, *arguments) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `specsim trace ...`."""
    capsys.readouterr()
    code = run(["trace", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_info_names_what_the_trace_holds_in_80_columns(capsys, monkeypatch, folder):
    monkeypatch.setenv("COLUMNS", "80")
    code, text, errors = trace(capsys, "info", folder)
    assert (code, errors) == (0, "")
    assert max(map(len, text.splitlines())) <= 80
    for part in ("small", "position-indexed", "CC0-1.0", "ngram", "early_exit", "point mass", "chat", "code", "19"):
        assert part in text
    assert "SYNTHETIC" not in text
    assert "…" not in text


def test_info_prints_json(capsys, folder):
    code, text, _ = trace(capsys, "info", folder, "--json")
    assert code == 0
    assert json.loads(text) == Trace.open(folder).info()
    assert json.loads(text)["drafters"][1]["max_depth"] == 3


def test_info_marks_a_made_up_trace(capsys, tmp_path):
    trace(capsys, "synthesize", tmp_path / "made", "--requests", 2)
    assert "SYNTHETIC: made up, not recorded" in trace(capsys, "info", tmp_path / "made")[1]


def test_info_says_that_a_trajectory_gives_estimates(capsys, tmp_path):
    folder = write_small(tmp_path / "trace", manifest(drafter("only"), kind="trajectory"))
    code, text, _ = trace(capsys, "info", folder)
    assert code == 0
    assert "estimate" in text


def test_validate_counts_what_it_checked(capsys, folder):
    code, text, errors = trace(capsys, "validate", folder)
    assert (code, errors) == (0, "")
    assert text == f"{folder}: valid, 3 requests, 38 blocks, 0 steps, sha256 of 2 files\n"


def test_validate_gives_one_line_and_exit_code_2(capsys, folder):
    (folder / "blocks.parquet").write_bytes(b"PAR1")
    code, text, errors = trace(capsys, "validate", folder)
    assert (code, text) == (2, "")
    assert len(errors.splitlines()) == 1
    assert "blocks.parquet: sha256 is" in errors


def test_slice_writes_the_requests_asked_for(capsys, tmp_path, folder):
    code, text, _ = trace(capsys, "slice", folder, tmp_path / "copy", "--domain", "chat", "--requests", "1:")
    assert code == 0
    assert text == f"{tmp_path / 'copy'}: 1 requests, 4 output tokens\n"
    assert Trace.open(tmp_path / "copy").requests.request_id.tolist() == [12]


def test_synthesize_writes_what_the_options_say(capsys, tmp_path):
    options = {
        "--name": "mine",
        "--rates": ".9,.8",
        "--depth": 4,
        "--requests": 6,
        "--output-tokens": "9",
        "--prompt-tokens": "3:5",
        "--domains": "a=2,b",
        "--domain-order": "sequential",
        "--seed": 5,
    }
    code, text, _ = trace(capsys, "synthesize", tmp_path / "made", *(part for item in options.items() for part in item))
    assert code == 0
    assert "SYNTHETIC" in text
    made = Trace.open(tmp_path / "made")
    assert made.validate().num_rows == 6 * 9
    assert made.manifest.name == "synthetic-mine"
    assert made.drafters[0].max_depth == 4
    assert [made.requests.domains[code] for code in made.requests.domain] == ["a"] * 3 + ["b"] * 3
    assert set(made.requests.num_prompt_tokens.tolist()) <= {3, 4, 5}
    assert '"rates": [0.9, 0.8]' in made.manifest.how


def test_a_preset_is_written(capsys, tmp_path):
    code, _, _ = trace(capsys, "preset", "h20-dflash", tmp_path / "h20", "--requests", 2, "--output-tokens", "8:9")
    assert code == 0
    assert Trace.open(tmp_path / "h20").manifest.name == "synthetic-h20-dflash"


def test_list_names_the_shipped_traces(capsys, tmp_path, monkeypatch):
    write_small(tmp_path / "traces" / "tiny")
    monkeypatch.chdir(tmp_path)
    assert "tiny" in trace(capsys, "list")[1].splitlines()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["validate", "nothing-here"], "nothing-here"),
        (["info"], "Missing argument"),
        (["slice", "{folder}", "{out}", "--requests", "1-2"], "START:STOP"),
        (["slice", "{folder}", "{out}", "--requests", "x:"], "START:STOP"),
        (["slice", "{folder}", "{out}", "--domain", "maths"], "allowed: chat, code"),
        (["slice", "{folder}", "{folder}"], "in use"),
        (["synthesize", "{out}", "--rates", ".5,x"], "--rates '.5,x'"),
        (["synthesize", "{out}", "--rates", ".5", "--mean-acceptance-length", "2"], "either rates or"),
        (["synthesize", "{out}", "--output-tokens", "5:3"], "1 <= least <= most"),
        (["synthesize", "{out}", "--output-tokens", "few"], "LEAST:MOST"),
        (["synthesize", "{out}", "--domains", "a=1,a=2"], "each name once"),
        (["synthesize", "{out}", "--domains", "a=x"], "--domains 'x'"),
        (["synthesize", "{out}", "--domain-order", "random"], "mixed or sequential"),
        (["synthesize", "{out}", "--depth", "deep"], "'--depth'"),
        (["preset", "h800", "{out}"], "allowed: h20-dflash"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(capsys, tmp_path, folder, arguments, expected):
    filled = [argument.format(folder=folder, out=tmp_path / "out") for argument in arguments]
    code, text, errors = trace(capsys, *filled)
    assert (code, text) == (2, "")
    assert len(errors.splitlines()) == 1
    assert expected in errors
    assert not (tmp_path / "out").exists()
