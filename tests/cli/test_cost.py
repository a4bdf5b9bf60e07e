from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from specsim.cli.cost import app
from specsim.errors import InputError
from specsim.shipped import shipped_names
from tests.cost.tables import draft, table, verify


@pytest.fixture
def folder(tmp_path):
    costs = table(
        [*verify({(1, 1): 0.1, (1, 16): 0.2}), *verify({(1, 1): 0.3, (1, 16): 0.4}, 64), *draft({(1, 8): 0.01})]
    )
    costs.save(tmp_path / "costs")
    return tmp_path / "costs"


def run(*arguments) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_show_prints_the_table_that_a_path_names(folder):
    text = run("show", folder, "--context", 64)
    assert "example (example)" in text
    assert "context 64 shown" in text
    assert max(map(len, text.splitlines())) <= 80


def test_show_prints_a_shipped_table_by_name():
    text = run("show", "h20-qwen3-8b")
    assert "whole step with 15 drafts a request by dflash" in text
    assert "133.9" in text


def test_show_prints_json(folder):
    printed = json.loads(run("show", folder, "--json"))
    assert printed["meta"]["label"] == "example"
    assert printed["notes"] == ["the cost table is a made-up example"]
    assert printed["cells"][0] == {
        "phase": "verify", "seconds": 0.1, "batch": 1, "tokens": 1, "depth": None, "context": 0, "drafter": None,
        "num_samples": None, "provenance": "measured",
    }  # fmt: skip


def test_show_writes_a_figure_that_opens_offline(folder, tmp_path):
    run("show", folder, "--plot", tmp_path / "out.html")
    page = (tmp_path / "out.html").read_text()
    assert "context 64" in page
    assert re.findall(r"<(?:script|link|img)\b[^>]*?(?:src|href)=.?http", page) == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["show", "nowhere"], "nowhere: no such cost table"),
        (["show", "FOLDER", "--context", "7"], "--context 7: not measured in example; measured: 0, 64"),
        (["show", "FOLDER", "--drafter", "x"], "--drafter x: not in example; it has block"),
        (["show", "FOLDER", "--plot", "/proc/nowhere/out.html"], "--plot /proc/nowhere/out.html: cannot be written"),
        (["show", "FOLDER", "--plot", "FOLDER"], "is a folder; give a file"),
    ],
)
def test_wrong_arguments_are_input_errors(folder, arguments, complaint):
    arguments = [str(folder) if argument == "FOLDER" else argument for argument in arguments]
    with pytest.raises(InputError, match=complaint):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_nothing_is_printed_when_the_figure_cannot_be_written(refused, folder):
    assert "cannot be written" in refused("cost", "show", folder, "--plot", "/proc/nowhere/out.html")


def test_list_names_the_shipped_tables_whole():
    shipped = shipped_names("cost")
    assert "h20-qwen3-8b" in shipped
    lines = run("list").splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[1:] if not line.startswith(" ")] == list(shipped)
    assert json.loads(run("list", "--json"))["h20-qwen3-8b"]["label"] == "published"
