from __future__ import annotations

import shutil

import pytest

from tests.trace.traces import write_small


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    return write_small(tmp_path_factory.mktemp("small") / "trace")


@pytest.fixture
def folder(template, tmp_path):
    """A small valid trace of one's own."""
    return shutil.copytree(template, tmp_path / "trace")
