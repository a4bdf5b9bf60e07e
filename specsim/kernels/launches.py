"""How often each Triton twin was called, so that a run can show that its kernels ran.

A twin's wrapper adds one under the twin's name, whatever number of kernels it starts. A captured CUDA graph runs no
Python when it is replayed: a captured call counts once, at its capture.
"""

from __future__ import annotations

from collections import Counter

LAUNCHES: Counter[str] = Counter()
"""Calls of each twin since the last `reset`, by its function's name."""


def reset() -> None:
    """Forget every call: tests and benchmarks count from here."""
    LAUNCHES.clear()
