"""The reading interface that recorded and synthetic traces share."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from specsim.core import Blocks, DrafterSpec
from specsim.trace.manifest import Manifest, TraceKind
from specsim.trace.requests import Requests


class TraceLike(Protocol):
    """A source of recorded (or made-up) acceptance, request by request."""

    @property
    def manifest(self) -> Manifest:
        """What the trace is and how it was made."""
        ...

    @property
    def kind(self) -> TraceKind:
        """Whether every output position has a row for every drafter."""
        ...

    @property
    def drafters(self) -> tuple[DrafterSpec, ...]:
        """The drafters, index = arm."""
        ...

    @property
    def requests(self) -> Requests:
        """The requests' columns."""
        ...

    def __len__(self) -> int:
        """Number of requests."""
        ...

    def blocks(self, index: int, drafter: int) -> Blocks:
        """What `drafter` proposes at every output position of the request at `index`."""
        ...

    def visits(self, index: int, drafter: int) -> tuple[np.ndarray, Blocks]:
        """The positions recorded for one request and drafter, [P] int64 and rising, and their blocks."""
        ...
