"""Seconds of a step by phase, on the host's clock or on the device's."""

from __future__ import annotations

import time
from typing import Any

import torch


class PhaseClock:
    """Marks the ends of phases in a step.

    device  where the phases run: on CUDA, events are recorded and read once the step is over, so that timing a
            phase makes nobody wait
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._origin = time.perf_counter()
        self._marks: list[tuple[str, Any]] = []
        self._events: list[Any] = []  # used again in every step

    def now(self) -> float:
        """Seconds since the engine was made."""
        return time.perf_counter() - self._origin

    def start(self) -> None:
        """The phases of a step begin here."""
        self._marks = []
        self.mark("")

    def mark(self, phase: str) -> None:
        """A phase ends here, and the next begins."""
        if self._cuda:
            if len(self._marks) == len(self._events):
                self._events.append(torch.cuda.Event(enable_timing=True))
            event = self._events[len(self._marks)]
            event.record()
            self._marks.append((phase, event))
        else:
            self._marks.append((phase, time.perf_counter()))

    def seconds(self) -> dict[str, float]:
        """Seconds of each phase since `start`; on CUDA, once everything marked has happened.

        A step that only computes a part of a prompt brings nothing to the host, so nobody has waited for it before.
        """
        if self._cuda:
            self._marks[-1][1].synchronize()
        found: dict[str, float] = {}
        for (_, before), (phase, after) in zip(self._marks, self._marks[1:], strict=False):
            took = before.elapsed_time(after) / 1000.0 if self._cuda else after - before
            found[phase] = found.get(phase, 0.0) + took
        return found
