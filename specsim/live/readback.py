"""Brings what a step found out to the host: one copy, and one wait."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch


class Readback:
    """Copies several tensors of 8-byte numbers at once, since a wait a tensor costs more than what they hold.

    device  where they lie. On CUDA the copy goes to pinned memory, which is used again: `fetch` hands out copies
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._pinned = torch.empty(0, dtype=torch.int64)
        self._event = torch.cuda.Event() if self._cuda else None

    def fetch(self, tensors: Sequence[torch.Tensor]) -> list[np.ndarray]:
        """The same on the host, each with its shape and type, int64 or float64.

        tensors  at least one
        """
        flat = torch.cat([values.reshape(-1).view(torch.int64) for values in tensors])
        flat = self._to_pinned(flat) if self._cuda else flat
        there = flat.numpy().copy() if self._cuda else flat.numpy()
        found, start = [], 0
        for values in tensors:
            piece = there[start : start + values.numel()]
            start += values.numel()
            found.append(piece.view(_NUMPY[values.dtype]).reshape(tuple(values.shape)))
        return found

    def _to_pinned(self, flat: torch.Tensor) -> torch.Tensor:
        if len(self._pinned) < len(flat):
            self._pinned = torch.empty(2 * len(flat), dtype=torch.int64, pin_memory=True)
        held = self._pinned[: len(flat)]
        held.copy_(flat, non_blocking=True)
        assert self._event is not None
        self._event.record()
        self._event.synchronize()
        return held


_NUMPY = {torch.int64: np.int64, torch.float64: np.float64}
