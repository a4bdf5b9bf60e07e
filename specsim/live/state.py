"""What the device knows of every slot: its tokens, and how the next ones are chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from specsim.live.drafters.batch import DraftBatch
from specsim.live.requests import LiveRequest


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

    def admit(self, slot: int, request: LiveRequest) -> None:
        """Put a request into a slot: its prompt, and what it had emitted before it was preempted."""
        tokens = np.concatenate([request.prompt, np.asarray(request.token_ids, np.int64)])
        self.history[slot, : len(tokens)] = torch.from_numpy(tokens)
        params = request.params
        self.temperature[slot] = params.temperature
        self.seeds[slot] = request.seed
        self.top_k[slot] = params.top_k
        self.top_p[slot] = params.top_p
        self.indices[slot] = request.index
        self._filters[slot] = params.filters

    def batch(self, slots: np.ndarray, lengths: np.ndarray, room: np.ndarray, positions: np.ndarray) -> DraftBatch:
        """Requests of a step, on both sides; see `DraftBatch`."""
        where = self.on_device(np.stack([slots, lengths, room, positions]))
        there = where[0]
        filtered = bool(self._filters[slots].any())
        return DraftBatch(
            slots, lengths, room, there, where[1], where[2], self.history, self.temperature[there], self.seeds[there],
            where[3], self.top_k[there] if filtered else None, self.top_p[there] if filtered else None,
        )  # fmt: skip

    def on_device(self, values: np.ndarray) -> torch.Tensor:
        """A small array of the host on the device."""
        there = torch.from_numpy(np.ascontiguousarray(values))
        return there if self.device.type == "cpu" else there.pin_memory().to(self.device, non_blocking=True)
