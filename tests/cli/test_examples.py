"""The examples that help and pages begin with can be run as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from specsim.cli import compare, simulate, tune

ROOT = Path(__file__).resolve().parents[2]
FEW = {
    "simulate": ["--requests", 8],
    "compare": ["--requests", 8, "--seeds", 1, "--jobs", 1],
    "tune": ["--requests", 8, "--seeds", 1, "--trials", 1],
}
"""What makes each command short; a later option takes the place of an earlier one."""


def of_help(function):
    """The example of a command's help, as arguments."""
    return shlex.split(re.search(r"Example: specsim (.*)", " ".join(function.__doc__.split()))[1])


def of_page(name):
    """The first comparison of a page, as arguments."""
    text = (ROOT / "docs" / name).read_text().replace("\\\n", " ")
    return shlex.split(re.search(r"^specsim (compare .*)$", text, re.MULTILINE)[1])


EXAMPLES = {
    "help of simulate": of_help(simulate.simulate),
    "help of compare": of_help(compare.compare),
    "help of tune": of_help(tune.tune),
    "docs/compare.md": of_page("compare.md"),
}


@pytest.mark.parametrize("arguments", EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_runs_as_it_stands(specsim, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = specsim(*arguments, *FEW[arguments[0]])
    assert (code, err.count("specsim: error")) == (0, 0), err
    assert out
