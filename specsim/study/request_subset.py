"""Some requests of a trace, recorded or made up, as a trace of their own."""

from __future__ import annotations

import numpy as np

from specsim.core import Blocks, DrafterSpec
from specsim.trace import TraceLike
from specsim.trace.manifest import Manifest, TraceKind
from specsim.trace.requests import Requests


class RequestSubset:
    """A view: request i is request `rows[i]` of the whole trace.

    whole   the trace
    rows    [N] int64, which requests
    """

    def __init__(self, whole: TraceLike, rows: np.ndarray) -> None:
        self.whole, self.rows = whole, rows
        self.requests: Requests = whole.requests.take(rows)

    @property
    def manifest(self) -> Manifest:
        """The whole trace's."""
        return self.whole.manifest

    @property
    def kind(self) -> TraceKind:
        """Whether every output position has a row for every drafter."""
        return self.whole.kind

    @property
    def drafters(self) -> tuple[DrafterSpec, ...]:
        """The drafters, index = arm."""
        return self.whole.drafters

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, index: int, drafter: int) -> Blocks:
        """What `drafter` proposes at every output position of the request at `index`."""
        return self.whole.blocks(int(self.rows[index]), drafter)

    def visits(self, index: int, drafter: int) -> tuple[np.ndarray, Blocks]:
        """The positions recorded for one request and drafter, [P] int64 and rising, and their blocks."""
        return self.whole.visits(int(self.rows[index]), drafter)
