"""What the device knows of every slot: its tokens, and how the next ones are chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from specsim.live.drafters.batch import DraftBatch
from specsim.live.requests import LiveRequest


@dataclass(frozen=True, slots=True)
class _Laws:
    """How the next tokens of some requests are chosen; see `DraftBatch`."""

    slots: np.ndarray
    temperature: torch.Tensor
    seeds: torch.Tensor
    top_k: torch.Tensor | None
    top_p: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class _Steady:
    """A batch's table after a step, without lengths and positions before it; see `DraftBatch`."""

    slots: np.ndarray
    depth: int
    room: np.ndarray
    table: torch.Tensor


class SlotState:
    """Tokens and sampling of every slot, on the device.

    num_slots   slots, S
    max_tokens  most tokens of a slot, drafts included, T
    device      a torch device
    """

    def __init__(self, num_slots: int, max_tokens: int, device: Any) -> None:
        self.device = torch.device(device)
        self.history = torch.zeros((num_slots, max_tokens), dtype=torch.int64, device=device)
        self.temperature = torch.zeros(num_slots, dtype=torch.float32, device=device)
        self.seeds = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self.top_k = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self.top_p = torch.ones(num_slots, dtype=torch.float32, device=device)
        self.indices = np.full(num_slots, -1, np.int64)  # row of a trace that each slot's request replays
        self._filters = np.zeros(num_slots, bool)
        self._laws: _Laws | None = None  # of the batch before
        self._steady: _Steady | None = None
        moves = torch.tensor([0, 1, 0, 1, 0, 1], device=device)
        self._moves = moves[:, None]  # rows of a batch's table that grow with its texts

    def admit(self, slot: int, request: LiveRequest) -> None:
        """Put a request into a slot: its prompt, and what it had emitted before it was preempted."""
        tokens = np.concatenate([request.prompt, np.asarray(request.token_ids, np.int64)])
        self.history[slot, : len(tokens)] = self.on_device(tokens)
        params = request.params
        self.temperature[slot] = params.temperature
        self.seeds[slot] = request.seed
        self.top_k[slot] = params.top_k
        self.top_p[slot] = params.top_p
        self.indices[slot] = request.index
        self._filters[slot] = params.filters
        self._laws = None

    def batch(self, slots: np.ndarray, lengths: np.ndarray, room: np.ndarray, positions: np.ndarray) -> DraftBatch:
        """Requests of a step, on both sides; see `DraftBatch`.

        slots  [B] int64; nobody may change the array, and while it is the same one, so are its requests
        """
        count = len(slots)
        table = np.zeros((6, count + count % 2), np.int64)  # rows of even length: kernels like aligned addresses
        table[:, :count] = np.stack([slots, lengths - 1, np.ones_like(slots), lengths, room, positions])
        where = self.on_device(table)[:, :count]
        there = where[0]
        laws = self._laws_of(slots, there)
        return DraftBatch(
            slots, lengths, room, there, where[3], where[4], self.history, laws.temperature, laws.seeds, where[5],
            laws.top_k, laws.top_p, where[:3], where,
        )  # fmt: skip

    def after(self, batch: DraftBatch, num_accepted: torch.Tensor, depth: int) -> DraftBatch:
        """The same requests once a step has brought them their accepted drafts and a token more, on the device.

        batch         before the step
        num_accepted  [B] int64, on the device
        depth         most drafts of the step; as many is then each request's room
        returns       a batch whose host `lengths` are bounds: the longest that the texts can be
        """
        assert batch.table is not None
        steady = self._steady_of(batch, depth)
        count = len(batch)
        where = torch.empty((6, count + count % 2), dtype=torch.int64, device=self.device)[:, :count]
        torch.add(steady.table, (batch.table + num_accepted) * self._moves, out=where)
        there, _, _, lengths, room, positions = where
        return replace(
            batch, lengths=batch.lengths + depth + 1, room=steady.room, device_slots=there, device_lengths=lengths,
            device_room=room, positions=positions, fed=where[:3], table=where, bounds=True,
        )  # fmt: skip

    def _steady_of(self, batch: DraftBatch, depth: int) -> _Steady:
        """What of the table after a step does not depend on the texts, as long as the requests are the same."""
        known = self._steady
        if known is None or known.slots is not batch.slots or known.depth != depth:
            room = np.full_like(batch.slots, depth)
            one = np.ones_like(batch.slots)
            table = self.on_device(np.stack([batch.slots, one, one, one, room, one]))
            known = self._steady = _Steady(batch.slots, depth, room, table)
        return known

    def _laws_of(self, slots: np.ndarray, there: torch.Tensor) -> _Laws:
        """Gathered when the batch's requests change, and not in every step: each gather is a launch."""
        if self._laws is None or self._laws.slots is not slots:
            filtered = bool(self._filters[slots].any())
            self._laws = _Laws(
                slots, self.temperature[there], self.seeds[there],
                self.top_k[there] if filtered else None, self.top_p[there] if filtered else None,
            )  # fmt: skip
        return self._laws

    def on_device(self, values: np.ndarray) -> torch.Tensor:
        """A small array of the host on the device."""
        there = torch.from_numpy(np.ascontiguousarray(values))
        return there if self.device.type == "cpu" else there.pin_memory().to(self.device, non_blocking=True)
