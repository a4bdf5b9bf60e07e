"""A cost table's answers on the device where plans are made."""

from __future__ import annotations

import numpy as np
import torch

from specsim.core import StepCost

CACHE_ENTRIES = 512


class DeviceCosts:
    """Copies of step costs on a device; a table answers with the same object for the same question.

    device  where plans are made
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copies: dict[int, tuple[StepCost, StepCost]] = {}

    def there(self, cost: StepCost, added: float) -> StepCost:
        """The cost on the device.

        cost    as the table gave it
        added   seconds that come on top whatever the budget: switching, prefill
        """
        copy = self._copy(cost)
        if not added:
            return copy
        envelope = None if copy.envelope is None else copy.envelope + added
        return StepCost(copy.seconds + added, envelope)

    def _copy(self, cost: StepCost) -> StepCost:
        known = self._copies.get(id(cost))
        if known is not None and known[0] is cost:
            return known[1]
        if len(self._copies) >= CACHE_ENTRIES:
            self._copies.clear()
        envelope = None if cost.envelope is None else self._moved(cost.envelope)
        copy = StepCost(self._moved(cost.seconds), envelope)
        self._copies[id(cost)] = (cost, copy)
        return copy

    def _moved(self, seconds: np.ndarray) -> torch.Tensor:
        """The same on the device, behind what it has still to do; nobody waits."""
        there = torch.tensor(seconds)
        return there if self._device.type == "cpu" else there.pin_memory().to(self._device, non_blocking=True)
