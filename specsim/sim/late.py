"""What a step takes longer when its requests change: what the live engine could not launch ahead, and who joins.

The live engine launches a step's beginning while the host is still at the step in front (`specsim.live.ahead`). It can
do so only where that beginning can be foreseen, and the conditions are the same here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specsim.core import Order
from specsim.cost import CostTable
from specsim.policies.controller import Controller
from specsim.serving.foresight import SAME_ORDERS, Surprises
from specsim.serving.scheduler import Scheduler


class Lateness:
    """Follows a replica's steps, and says what each takes beyond what the same step would take between its like.

    scheduler   membership of the batch
    controller  decides
    cost        with cells of steps whose requests change
    limits      longest sequence that each arm can draft after, drafts included (None: any)
    """

    def __init__(
        self, scheduler: Scheduler, controller: Controller, cost: CostTable, limits: Sequence[int | None]
    ) -> None:
        self._scheduler, self._controller, self._cost, self._limits = scheduler, controller, cost, limits
        self._plain = not controller.budget_policy.drafts
        self._surprises = Surprises()
        self._foreseen = 0  # requests that were to decode plainly in the next step (0: it could not be foreseen)
        self._launched = False
        self._wasted = 0.0  # seconds of what was launched, if it comes to nothing
        self._before: Order | None = None
        self._same = 0  # steps in a row whose order was that of the one before

    def seconds(self, slots: np.ndarray, chunks: list[tuple[int, int]], order: Order, drafting: float | None) -> float:
        """What a step takes longer. To be asked once a step, when its order is known.

        slots       [B] int64, who decodes
        chunks      (slot, prompt tokens) of prompts computed beside
        order       of who decodes
        drafting    seconds that it will draft (None: not at all)
        """
        batch = len(slots)
        joined = self._cost.join_seconds(len(self._scheduler.running), len(self._scheduler.admitted))
        late = self._cost.late_seconds(max(batch, 1), drafting)
        launched, self._launched = self._launched, False
        if batch:
            taken = self._plainly(batch, bool(chunks)) if self._plain else self._as_before(order)
        else:
            taken, self._foreseen = False, 0
        if launched:
            # A table that does not say what launching ahead gains knows nothing of launching.
            return joined + (0.0 if taken or not late else max(self._wasted, late))
        return joined + late

    def foresee(self, slots: np.ndarray, chunks: list[tuple[int, int]], order: Order, drafting: float) -> None:
        """A step is about to be committed: whether the next one's beginning is launched meanwhile.

        slots, chunks, order  of the step
        drafting              seconds that it drafted
        """
        state = self._scheduler.slots
        newcomers = [slot for slot, size in chunks if state.computed[slot] + size == state.to_compute[slot]]
        if self._plain:
            self._foresee_pass(slots, newcomers)
            return
        drafts = len(slots) > 0 and order.depth > 0 and order.arms is None and not self._controller.stops_drafting
        known = not newcomers and self._same >= SAME_ORDERS
        self._launched = drafts and known and self._has_room(order, int(state.length[slots].max()))
        self._wasted = drafting

    def rest(self) -> None:
        """Nothing is left to do: the next step is none that could be foreseen."""
        self._launched, self._foreseen = False, 0

    def _has_room(self, order: Order, longest: int) -> bool:
        """Whether as many drafts as ordered have room after a step, however many of its own are accepted."""
        limit = self._limits[order.arm]
        return limit is None or longest + 2 * order.depth + 1 <= limit

    def _foresee_pass(self, slots: np.ndarray, newcomers: list[int]) -> None:
        scheduler, state = self._scheduler, self._scheduler.slots
        whose = np.concatenate([slots, np.array(newcomers, np.int64)])
        comes = len(scheduler.prefilling) > len(newcomers) or (scheduler.waiting and state.free)
        full = whose[state.emitted[whose] + 1 >= state.limit[whose]].tolist()
        # Only a length is known before the step is; a stop token comes by surprise.
        ends = any(not state.request(slot).finishes_by_stop for slot in full)
        self._foreseen = 0 if comes or ends else len(whose)
        if self._foreseen:
            self._launched = self._surprises.allow(self._cost.gain_of_launching_ahead(len(whose)))
            self._wasted = self._cost.phases(None, len(whose), 0, 0, self._mean_length(whose)).verify

    def _mean_length(self, slots: np.ndarray) -> float:
        return float(self._scheduler.slots.length[slots].mean()) + 1.0

    def _plainly(self, batch: int, chunks: bool) -> bool:
        """Whether a plain step is the one that was foreseen."""
        foreseen, self._foreseen = self._foreseen, 0
        if not foreseen:
            return False
        surprised = chunks or not self._same_pass(batch, foreseen)
        self._surprises.learn(surprised)
        return not surprised

    def _same_pass(self, one: int, other: int) -> bool:
        """Whether the pass of more requests serves for fewer of them: it is the same captured graph."""
        if one == other:
            return True
        sizes = self._cost.meta.capture_sizes
        paid = self._cost.tokens_paid(one, one), self._cost.tokens_paid(other, other)
        captured = bool(sizes) and max(one, other) <= sizes[-1]
        return captured and paid[0] == paid[1] and (one - 1).bit_length() == (other - 1).bit_length()

    def _as_before(self, order: Order) -> bool:
        """Whether a step's order is that of the one before."""
        before, self._before = self._before, order
        known = before is not None and (order.arm, order.depth) == (before.arm, before.depth)
        self._same = self._same + 1 if known and order.arms is None else 0
        return self._same > 0
