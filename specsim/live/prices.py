"""What the engine asks a cost table, and what it has the table look up before it is asked."""

from __future__ import annotations

import math

from specsim.core import DrafterSpec, StepCost
from specsim.cost import CostTable
from specsim.cost.table import CONTEXT_GRID
from specsim.errors import InputError


class Prices:
    """Asks a cost table for steps. A context asked for the first time costs a look-up a depth, which would be waited
    for: so the next one is looked up while the device is busy.

    cost  the table
    """

    def __init__(self, cost: CostTable) -> None:
        self._cost = cost
        self._asked: list[tuple[DrafterSpec | None, int, int]] = []  # in this step
        self._context = 0.0
        self._known = -1, -1  # batch and cell of a context whose next cell was looked up

    def step_cost(self, drafter: DrafterSpec | None, batch: int, depth: int, context: float) -> StepCost:
        """See `CostTable.step_cost`."""
        self._asked.append((drafter, batch, depth))
        self._context = context
        return self._cost.step_cost(drafter, batch, depth, context)

    def look_ahead(self) -> None:
        """Look up at the next context what this step was asked for, unless that was done."""
        asked, self._asked = self._asked, []
        if not asked:
            return
        cell = math.ceil(self._context / CONTEXT_GRID)
        following, known = (cell + 1) * CONTEXT_GRID, (asked[-1][1], cell)
        if known == self._known or following > self._cost.ranges.context[1]:
            return
        self._known = known
        try:
            for drafter, batch, depth in asked:
                self._cost.step_cost(drafter, batch, depth, following)
        except InputError:
            return  # it may never be asked; who asks is told
