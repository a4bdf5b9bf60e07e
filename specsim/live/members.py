"""The requests that decode together, as long as they are the same ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specsim.live.requests import LiveRequest
from specsim.serving import Slots


class Members:
    """What every step asks of its requests, worked out once when they change.

    requests  B of them, in batch order

    domains     kind of prompt of each
    sequences   position of each in the order of submission
    eos         [B] bool, whether a stop token ends it
    with_stops  rows of those that a stop text may end
    with_text   rows of the others whose text is kept
    heard       rows of those that somebody listens to
    """

    def __init__(self, requests: Sequence[LiveRequest]) -> None:
        self.requests = list(requests)
        self.domains = tuple(request.domain for request in requests)
        self.sequences = tuple(request.sequence for request in requests)
        self.eos = np.array([not request.params.ignore_eos for request in requests], bool)
        self.any_eos = bool(self.eos.any())
        texts = [row for row, request in enumerate(requests) if request.detokenizer is not None]
        self.with_stops = [row for row in texts if requests[row].params.stop]
        self.with_text = [row for row in texts if not requests[row].params.stop]
        self.heard = [row for row, request in enumerate(requests) if request.on_chunk is not None]


NOBODY = Members(())


class Membership:
    """Keeps the members of the latest step.

    slots  of the engine
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._of: np.ndarray | None = None
        self._members = NOBODY

    def of(self, decoding: np.ndarray) -> Members:
        """The requests in some slots.

        decoding  [B] int64; a scheduler makes a new array whenever the requests change
        """
        if self._of is not decoding:
            self._of, self._members = decoding, Members([_live(self._slots, slot) for slot in decoding.tolist()])
        return self._members


def _live(slots: Slots, slot: int) -> LiveRequest:
    request = slots.request(slot)
    assert isinstance(request, LiveRequest)
    return request
