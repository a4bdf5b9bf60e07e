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
        self._marks: list[tuple[str, Any]] = []  # of the step that `seconds` tells of
        self._open = self._marks  # those that are added to
        self._events: list[Any] = []  # of the open marks; used again two steps later
        self._others: list[Any] = []  # of the marks before

    def now(self) -> float:
        """Seconds since the engine was made."""
        return time.perf_counter() - self._origin

    def start(self, begun: bool = False) -> None:
        """The phases of a step begin here, or began at the latest `start_next`.

        begun  whether something was launched ahead for the step: what passed since the last mark is then no phase
        """
        if not begun:
            self._open_marks()
        self._marks = self._open
        self.mark("")

    def start_next(self) -> None:
        """The phases of the next step begin here, while `seconds` still tells of this one."""
        self._open_marks()
        self.mark("")

    def _open_marks(self) -> None:
        if self._open is self._marks:  # else nothing came of a step that was begun, and its events are free
            self._events, self._others = self._others, self._events
        self._open = []

    def mark(self, phase: str) -> None:
        """A phase ends here, and the next begins."""
        if self._cuda:
            if len(self._open) == len(self._events):
                self._events.append(torch.cuda.Event(enable_timing=True))
            event = self._events[len(self._open)]
            event.record()
            self._open.append((phase, event))
        else:
            self._open.append((phase, time.perf_counter()))

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
