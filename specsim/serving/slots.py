"""The running requests of one replica as arrays, one slot a request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(slots=True, eq=False)
class Request:
    """One request on its way through a replica.

    sequence            position in the order of submission; breaks every tie between requests
    index               row of the trace's request table
    limit               output tokens after which it finishes
    finishes_by_stop    whether the recorded output ends there by itself (else: by length)
    num_emitted         output tokens so far; kept over a preemption
    """

    sequence: int
    index: int
    request_id: int
    domain: str
    num_prompt_tokens: int
    limit: int
    finishes_by_stop: bool
    arrived_at: float
    admitted_at: float = float("nan")
    first_token_at: float = float("nan")
    num_emitted: int = 0
    num_steps: int = 0
    num_preemptions: int = 0


class Slots:
    """Struct of arrays over slots. A slot's values mean something while its request runs.

    num_slots   most running requests
    """

    def __init__(self, num_slots: int) -> None:
        self.requests: list[Request | None] = [None] * num_slots
        self.free = list(range(num_slots - 1, -1, -1))
        self.emitted = np.zeros(num_slots, np.int64)  # output tokens
        self.length = np.zeros(num_slots, np.int64)  # prompt and output tokens
        self.limit = np.zeros(num_slots, np.int64)  # output tokens at which it finishes
        self.last_emit_at = np.zeros(num_slots)  # seconds
        self.first_emit_at = np.zeros(num_slots)  # seconds
        self.num_steps = np.zeros(num_slots, np.int64)  # decode steps
        self.domains = [""] * num_slots
        self.sequences = [0] * num_slots
        self.computed = [0] * num_slots  # tokens prefilled
        self.to_compute = [0] * num_slots  # tokens to prefill before it decodes

    def place(self, request: Request) -> int:
        """Give a request the lowest free slot number and set its arrays."""
        slot = self.free.pop()
        self.requests[slot] = request
        self.emitted[slot] = request.num_emitted
        self.length[slot] = request.num_prompt_tokens + request.num_emitted
        self.limit[slot] = request.limit
        self.num_steps[slot] = request.num_steps
        self.domains[slot] = request.domain
        self.sequences[slot] = request.sequence
        self.computed[slot] = 0
        self.to_compute[slot] = request.num_prompt_tokens + request.num_emitted
        return slot

    def remove(self, slot: int) -> Request:
        """Take a request out of its slot, carrying what it has emitted."""
        request = self.request(slot)
        request.num_emitted = int(self.emitted[slot])
        request.num_steps = int(self.num_steps[slot])
        self.requests[slot] = None
        self.free.append(slot)
        return request

    def request(self, slot: int) -> Request:
        """The request in an occupied slot."""
        request = self.requests[slot]
        assert request is not None, f"slot {slot} is empty"
        return request
