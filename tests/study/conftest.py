"""Studies on a small made-up world."""

from __future__ import annotations

import pytest

from specsim.config import StudyConfig, build_study
from tests.study.world import build_world


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """The folder that holds `trace`, `linear` and `staircase`."""
    return build_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def study(world):
    """Builds a study on that world; keywords override."""

    def build(**changes) -> StudyConfig:
        document = {
            "trace": str(world / "trace"),
            "tables": [str(world / "linear")],
            "policies": ["fixed_depth:depth=3@strong", "fixed_depth@weak", "dcut@strong", "dcut@ucb1"],
            "batches": [2, 8],
            "requests": 16,
            "seeds": [0, 1],
        }
        return build_study({**document, **changes})

    return build
