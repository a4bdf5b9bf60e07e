"""Runs the command line as a shell would, in this process."""

from __future__ import annotations

import pytest

from specsim.cli.main import run
from tests.study.world import build_world


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """The folder that holds `trace`, `linear` and `staircase`."""
    return build_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def specsim(capsys, monkeypatch):
    """Runs `specsim ARGUMENTS`; returns exit code, stdout and stderr. The terminal has 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def refused(specsim):
    """Runs a command that must be refused; returns its one line."""

    def command(*arguments) -> str:
        code, out, err = specsim(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("specsim: error: ")
        assert err.count("\n") == 1
        return err.removeprefix("specsim: error: ").rstrip("\n")

    return command
