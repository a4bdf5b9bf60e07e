"""Brings what a step found out to the host: one copy, and one wait."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch


class Readback:
    """Copies several tensors of 8-byte numbers at once, since a wait a tensor costs more than what they hold.

    device  where they lie. On CUDA the copy goes to pinned memory, which is used again: `fetch` hands out copies,
            and must come before the next `ask`
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._pinned = torch.empty(0, dtype=torch.int64)
        self._event = torch.cuda.Event() if self._cuda else None
        self._asked: Sequence[torch.Tensor] = ()
        self._flat = self._pinned

    def ask(self, tensors: Sequence[torch.Tensor]) -> None:
        """Let the copy begin once everything launched so far is done; what is launched from now on comes behind it.

        tensors  int64 or float64
        """
        self._asked = tensors
        if tensors:
            flat = torch.cat([values.reshape(-1).view(torch.int64) for values in tensors])
            self._flat = self._to_pinned(flat) if self._cuda else flat

    def fetch(self) -> list[np.ndarray]:
        """What was asked for last, on the host, each with its shape and type."""
        if not self._asked:
            return []
        if self._event is not None:
            self._event.synchronize()
        there = self._flat.numpy().copy() if self._cuda else self._flat.numpy()
        found, start = [], 0
        for values in self._asked:
            piece = there[start : start + values.numel()]
            start += values.numel()
            found.append(piece.view(_NUMPY[values.dtype]).reshape(tuple(values.shape)))
        self._asked = ()
        return found

    def _to_pinned(self, flat: torch.Tensor) -> torch.Tensor:
        if len(self._pinned) < len(flat):
            self._pinned = torch.empty(2 * len(flat), dtype=torch.int64, pin_memory=True)
        held = self._pinned[: len(flat)]
        held.copy_(flat, non_blocking=True)
        assert self._event is not None
        self._event.record()
        return held


_NUMPY = {torch.int64: np.int64, torch.float64: np.float64}
