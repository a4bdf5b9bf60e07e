"""Continuous batching as vLLM does it: who runs, who prefills how much, who is preempted.

A step first makes room for the running decodes (lookahead slots included), preempting the request admitted
last while blocks are short; then goes on with unfinished prompts, oldest first; then admits from the queue,
first come first served, while slots, blocks and the token budget last. A step that preempted admits nobody.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from specsim.errors import InputError
from specsim.serving.engine_config import EngineConfig
from specsim.serving.kv import BlockPool
from specsim.serving.slots import Request, Slots


class Scheduler:
    """Membership of the batch of one replica.

    config      limits
    num_slots   most running requests
    lookahead   deepest draft; each decode reserves room for lookahead + 1 tokens
    pool        the KV blocks (None: counted only, as a simulator needs)
    """

    def __init__(self, config: EngineConfig, num_slots: int, lookahead: int, pool: BlockPool | None = None) -> None:
        self.config = config
        self.lookahead = lookahead
        self.slots = Slots(num_slots)
        self.pool = BlockPool(config.num_kv_blocks, config.block_size, num_slots) if pool is None else pool
        self.waiting: deque[Request] = deque()
        self.running: list[int] = []  # slots in order of admission, prefilling ones included
        self.prefilling: list[int] = []  # the part of `running` whose prompt is unfinished
        self.decoding = np.zeros(0, np.int64)  # the rest, as an array
        self.total_length = 0  # tokens of the decoding requests
        self.num_preemptions = 0
        self.admitted: list[int] = []  # slots filled since the last call of `schedule`

    def has_work(self) -> bool:
        """Whether any request runs or waits."""
        return bool(self.running or self.waiting)

    def submit(self, request: Request) -> None:
        """Queue a request.

        Raises InputError when it could never run, even alone.
        """
        most = request.num_prompt_tokens + request.limit + self.lookahead
        if self.pool.blocks_for(most) > self.pool.num_blocks:
            raise InputError(
                f"request {request.request_id} needs {self.pool.blocks_for(most)} KV blocks of "
                f"{self.pool.block_size} tokens with its lookahead; num_kv_blocks is {self.pool.num_blocks}"
            )
        self.waiting.append(request)

    def schedule(self, now: float) -> list[tuple[int, int]]:
        """Decide the next step's membership.

        now         instant of the step's start, seconds
        returns     (slot, prompt tokens) of each chunk to prefill in this step
        """
        self.admitted.clear()
        preempted = self._reserve_decodes()
        if not self.prefilling and not self.waiting:
            return []
        budget = self.config.max_num_batched_tokens - len(self.decoding) * (1 + self.lookahead)
        chunks = []
        for slot in self.prefilling:
            size = min(self.slots.to_compute[slot] - self.slots.computed[slot], budget)
            if size and self.pool.reserve(slot, self.slots.computed[slot] + size):
                chunks.append((slot, size))
                budget -= size
        if not preempted:
            self._admit(now, budget, chunks)
        self._ensure_progress(chunks)
        return chunks

    def _reserve_decodes(self) -> bool:
        """Room for every decode's anchor and lookahead; preempts from the back while it lacks."""
        preempted = False
        while len(self.decoding) and not self.pool.reserve_all(
            self.decoding, self.slots.length[self.decoding] + self.lookahead
        ):
            self._preempt(self.running[-1])
            preempted = True
        return preempted

    def _ensure_progress(self, chunks: list[tuple[int, int]]) -> None:
        """Prefills that block each other's last blocks: the youngest gives way until the oldest fits."""
        while self.prefilling and not chunks and not len(self.decoding):
            slot = self.prefilling[0]
            if len(self.running) > 1:
                self._preempt(self.running[-1])
            left = self.slots.to_compute[slot] - self.slots.computed[slot]
            size = min(left, self.config.max_num_batched_tokens)
            if self.pool.reserve(slot, self.slots.computed[slot] + size):
                chunks.append((slot, size))

    def _admit(self, now: float, budget: int, chunks: list[tuple[int, int]]) -> None:
        slots = self.slots
        excluded = self.config.prefill == "excluded"
        while self.waiting and slots.free and (excluded or budget > 0):
            request = self.waiting[0]
            prompt = request.num_prompt_tokens + request.num_emitted
            size = prompt if excluded else min(prompt, budget)
            slot = slots.free[-1]
            # A whole prompt decodes in the next step, so its lookahead must fit as well.
            room = size + 1 + self.lookahead if size == prompt else size
            if not self.pool.reserve(slot, room):
                break
            self.waiting.popleft()
            assert slots.place(request) == slot
            if np.isnan(request.admitted_at):
                request.admitted_at = now
            self.running.append(slot)
            self.admitted.append(slot)
            if excluded:
                slots.computed[slot] = prompt
                self.prefilling.append(slot)
                chunks.append((slot, 0))
            else:
                self.prefilling.append(slot)
                chunks.append((slot, size))
                budget -= size

    def finish_prefill(self, slot: int) -> None:
        """A prompt is complete and its first token emitted: the request decodes from now on."""
        self.prefilling.remove(slot)
        self.total_length += int(self.slots.length[slot])
        self._rebuild()

    def release(self, slot: int) -> Request:
        """Take a request out of the batch and free its blocks."""
        if slot in self.prefilling:
            self.prefilling.remove(slot)
        else:
            self.total_length -= int(self.slots.length[slot])
        self.running.remove(slot)
        self.pool.release(slot)
        request = self.slots.remove(slot)
        self._rebuild()
        return request

    def _preempt(self, slot: int) -> None:
        request = self.release(slot)
        request.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.appendleft(request)

    def _rebuild(self) -> None:
        prefilling = set(self.prefilling)
        self.decoding = np.array([slot for slot in self.running if slot not in prefilling], np.int64)
