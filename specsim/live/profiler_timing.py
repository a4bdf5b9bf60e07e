"""Time what a device does, again and again, without making the host wait between measurements."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

REPLAYS = 3
"""Runs between two CUDA events."""


def runs_of_a_sample(device: str | torch.device) -> int:
    """How often `Stopwatch.sample` runs what it times."""
    return 1 + REPLAYS if torch.device(device).type == "cuda" else 1


class Stopwatch:
    """Takes one sample a call, and hands all samples over at the end of a round.

    device  where the timed work runs. On a CPU a sample is one run by the host's clock. On CUDA it is the mean of a few
            runs between two events, behind a run that nobody times: while the device is busy with that one, the
            host gets ahead, so that what is timed is the device's work
    """

    def __init__(self, device: str | torch.device) -> None:
        self._cuda = torch.device(device).type == "cuda"
        self._taken: list[Any] = []

    def sample(self, run: Callable[[], None]) -> None:
        """Time one run."""
        if self._cuda:
            run()
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            for _ in range(REPLAYS):
                run()
            after.record()
            self._taken.append((before, after))
        else:
            started = time.perf_counter()
            run()
            self._taken.append(time.perf_counter() - started)

    def end_round(self) -> list[float]:
        """Seconds of a run, for every sample since the round before, in order."""
        taken, self._taken = self._taken, []
        if not self._cuda:
            return taken
        torch.cuda.synchronize()
        return [before.elapsed_time(after) / 1e3 / REPLAYS for before, after in taken]
