"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from specsim.errors import InputError

RouterName: TypeAlias = Literal["round_robin", "least_loaded"]


class Loaded(Protocol):
    """Anything that can say how loaded it is."""

    def load(self) -> int:
        """Requests running or waiting."""
        ...


class RoundRobin:
    """Replicas in turn."""

    def __init__(self) -> None:
        self._next = 0

    def route(self, replicas: Sequence[Loaded]) -> int:
        """Index of the replica to send the next request to."""
        index = self._next % len(replicas)
        self._next += 1
        return index


class LeastLoaded:
    """The replica with the fewest requests running or waiting; the lowest index among equals."""

    def route(self, replicas: Sequence[Loaded]) -> int:
        """Index of the replica to send the next request to."""
        return min(range(len(replicas)), key=lambda index: replicas[index].load())


ROUTERS: dict[str, type[RoundRobin] | type[LeastLoaded]] = {"round_robin": RoundRobin, "least_loaded": LeastLoaded}


def build_router(name: str) -> RoundRobin | LeastLoaded:
    """A router by name.

    Raises InputError for an unknown one.
    """
    if name not in ROUTERS:
        raise InputError(f"router is {name!r}; allowed: {', '.join(ROUTERS)}")
    return ROUTERS[name]()
