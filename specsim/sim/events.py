"""The total order of simultaneous events, on top of SimPy's queue.

SimPy processes events by (time, priority, order of scheduling). The priorities here make the order at one
instant independent of who was scheduled first:

1. arrivals, in the order of their sequence number;
2. ends of engine steps, lowest replica first: each commits its tokens, lets a closed loop submit what it
   owes, and starts the replica's next step;
3. wake-ups of idle replicas, lowest replica first.

So a request that arrives at the very instant a step ends takes part in the next step.
"""

from __future__ import annotations

from typing import cast

import simpy
from simpy.events import EventPriority

ARRIVAL = 0
STEP_END = 1
WAKE_UP = 1 << 20
"""Replica r ends steps at priority STEP_END + r and wakes up at WAKE_UP + r."""


class Timed(simpy.Event):
    """An event that happens `delay` seconds from now, ordered by `priority` among those of its instant."""

    def __init__(self, env: simpy.Environment, delay: float, priority: int) -> None:
        # As simpy.Timeout does, but with a priority of our own.
        self.env = env
        self.callbacks = []
        self._value = None
        self._ok = True
        self._defused = False
        env.schedule(self, cast(EventPriority, priority), delay)


class Signal(simpy.Event):
    """An event that somebody fires, ordered by `priority` among those of its instant."""

    def fire(self, priority: int) -> None:
        """Happen now; firing twice is firing once."""
        if not self.triggered:
            self._ok, self._value = True, None
            self.env.schedule(self, cast(EventPriority, priority))
