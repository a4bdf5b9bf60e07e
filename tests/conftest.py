"""What holds for every test: Hypothesis never judges speed, and tests for CUDA say why they do not run."""

import functools
import os

import pytest
from hypothesis import settings

# A slow machine is no fault of the code. In CI the examples are always the same, so that a red run is the change's own.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@functools.cache
def cuda_fault() -> str | None:
    """Why tests marked `gpu` cannot run here, or None when they can."""
    try:
        import torch
    except ImportError:
        return "needs torch (the extra `live`)"
    return None if torch.cuda.is_available() else "needs a CUDA device"


# Read when triton is first imported, by whichever test comes first: kernels are interpreted where none can be compiled.
if cuda_fault():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and (fault := cuda_fault()):
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason=fault))
