"""What a step begins with, launched before the step in front of it is read: the device works while the host commits.

A plain decode begins with the target's pass, a speculative one with drafting. Both need of the step in front nothing
but the tokens and lengths that the device already has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from specsim.core import Order
from specsim.kernels.verify import Verdict
from specsim.live.drafters.batch import DraftBatch, Drafted, DraftsAhead
from specsim.live.runner import PassOutput, Rows
from specsim.live.step import Step
from specsim.serving.foresight import SAME_ORDERS, Surprises

if TYPE_CHECKING:
    from specsim.live.engine import Engine


@dataclass(frozen=True, slots=True)
class Launched:
    """The beginning of a step that nobody has ordered yet.

    batch       who is foreseen to decode; its host `lengths` are not known yet, and bounds stand there
    drafted     what was proposed (None: the pass was run)
    out         what the pass brought (None: it was drafted)
    """

    batch: DraftBatch
    drafted: Drafted | None
    out: PassOutput | None


class Ahead:
    """Launches the beginning of the next step, and hands it over if the step turns out to be the foreseen one.

    Nothing is decided here: membership and order of the step are found out as always, and what they contradict is
    dropped. What was dropped has left keys, values and drafts behind committed tokens only, where whoever comes next
    writes before reading.

    engine  whose
    limits  longest sequence each arm can draft after, drafts included

    enabled     whether anything is launched ahead; by itself not on a CPU, which would have to compute it first
    num_taken   steps that had their beginning
    num_dropped beginnings that came to nothing
    """

    def __init__(self, engine: Engine, limits: Sequence[int]) -> None:
        self._engine, self._limits = engine, limits
        self._setup, self._controller = engine.setup, engine.controller
        self.enabled = engine.options.launch_ahead and engine.setup.device.type == "cuda"
        self.num_taken = self.num_dropped = 0
        self._launched: Launched | None = None
        self._order: Order | None = None
        self._same = 0  # steps in a row whose order was that of the one before
        self._surprises = Surprises()
        self._foreseen: np.ndarray | None = None  # who was to decode plainly, and nothing else to happen
        self._plain = not self._controller.budget_policy.drafts
        self._drafters = [drafter if isinstance(drafter, DraftsAhead) else None for drafter in engine.drafters]

    def launch(self, step: Step, verdict: Verdict | None, completed: np.ndarray | None) -> Launched | None:
        """Launch what the next step will begin with, if that can be foreseen.

        verdict    of the step, on the device (None: nobody decodes)
        completed  [P] int64, slots whose prompt is complete, so that they decode from the next step on (None: no one's)
        returns    to be kept once the step is committed (None: nothing was launched)
        """
        if not self.enabled:
            return None
        if self._plain:
            return self._launch_pass(step, verdict, completed)
        if verdict is None or completed is not None:
            return None
        return self._launch_drafting(step, verdict)

    def _launch_pass(self, step: Step, verdict: Verdict | None, completed: np.ndarray | None) -> Launched | None:
        """A plain step's pass: every text is then a token longer, whatever the token is."""
        slots, scheduler = self._engine.scheduler.slots, self._engine.scheduler
        newcomers = 0 if completed is None else len(completed)
        # Where all prompts are complete, those who run are those who decode, in their order.
        whose = np.array(scheduler.running, np.int64) if newcomers else step.slots
        comes = len(scheduler.prefilling) > newcomers or (scheduler.waiting and scheduler.slots.free)
        lengths, emitted = slots.length[whose] + 1, slots.emitted[whose] + 1
        if comes or not len(whose) or (emitted >= slots.limit[whose]).any():
            return None
        self._foreseen = whose
        gain = self._engine.cost.gain_of_launching_ahead(len(whose))
        if not self._surprises.allow(gain) or not self._setup.pool.hand_out_ahead(whose, lengths):
            return None
        if newcomers or step.batch is None or verdict is None:
            after = self._setup.state.batch(whose, lengths, np.zeros_like(whose), emitted)
        else:
            after = self._setup.state.after(step.batch, verdict.num_accepted, 0)
        assert after.fed is not None
        self._engine.clock.start_next()
        out = self._setup.runner.run(Rows.of(after.fed, len(after)))
        self._engine.clock.mark("verify")
        return Launched(after, None, out)

    def _launch_drafting(self, step: Step, verdict: Verdict) -> Launched | None:
        batch, order = step.batch, step.order
        if batch is None or not order.depth or order.arms is not None or self._controller.stops_drafting:
            return None
        drafter, longest = self._drafters[order.arm], batch.lengths + order.depth + 1  # after this step
        if drafter is None or self._same < SAME_ORDERS or int(longest.max()) + order.depth > self._limits[order.arm]:
            return None
        if not self._setup.pool.hand_out_ahead(batch.slots, longest + order.depth):
            return None
        after = self._setup.state.after(batch, verdict.num_accepted, order.depth)
        if not drafter.drafts_ahead(after):
            return None
        self._engine.clock.start_next()
        drafted = drafter.draft(after, order.depth)
        self._engine.clock.mark("draft")
        return Launched(after, drafted, None)

    def keep(self, launched: Launched | None) -> None:
        """The step in front is committed: what was launched is the next one's. A step that fails is taken again."""
        self._launched = launched

    def take(self, step: Step) -> bool:
        """Give a step whose order is known its beginning, if that is what was launched.

        step     gets the batch, and what was drafted or the pass's output
        returns  whether there was one
        """
        launched, self._launched = self._launched, None
        self._learn(step)
        order, before = step.order, self._order
        self._order = order
        known = before is not None and (order.arm, order.depth) == (before.arm, before.depth)
        self._same = self._same + 1 if known and order.arms is None else 0
        if launched is None:
            return False
        taken = (self._plain or self._same > 0) and self._hand_over(step, launched)
        self.num_taken += taken
        self.num_dropped += not taken
        return taken

    def use_drafts(self, step: Step) -> None:
        """Let the drafter know that what it drafted ahead is the step's, whose batch is known."""
        if step.drafted is not None:
            drafter = self._drafters[step.order.arm]
            assert drafter is not None
            assert step.batch is not None
            drafter.drafted_ahead(step.batch)

    def drop(self) -> None:
        """The next step is none that could have been foreseen."""
        self.num_dropped += self._launched is not None
        self._launched = self._foreseen = None

    def _learn(self, step: Step) -> None:
        """Whether a plain step is what was foreseen."""
        foreseen, self._foreseen = self._foreseen, None
        if foreseen is not None:
            self._surprises.learn(bool(step.chunks) or self._rows_in(step.slots, foreseen) is None)

    def _rows_in(self, slots: np.ndarray, foreseen: np.ndarray) -> np.ndarray | None:
        """[b] int64, rows of a plain pass over some slots that serve for others (None: the pass is another)."""
        if slots is foreseen or np.array_equal(slots, foreseen):
            return np.arange(len(slots))
        return _rows_of(slots, foreseen) if self._setup.runner.same_graph(len(slots), len(foreseen)) else None

    def _hand_over(self, step: Step, launched: Launched) -> bool:
        batch, out = launched.batch, launched.out
        if out is not None and step.chunks:
            return False
        if step.slots is batch.slots:
            lengths = self._engine.scheduler.slots.length[step.slots]
            step.batch = replace(batch, lengths=lengths, bounds=False)
            step.drafted, step.out = launched.drafted, out
            return True
        rows = _rows_of(step.slots, batch.slots) if out is None else self._rows_in(step.slots, batch.slots)
        if rows is None:
            return False
        index, all_of = self._setup.state.on_device(rows), launched.drafted
        if all_of is None:
            assert out is not None
            step.out = PassOutput(out.logits, out.query_start[index])
            return True
        log_prob = None if all_of.log_prob is None else all_of.log_prob[index]
        scores = {name: values[index] for name, values in all_of.scores.items()}
        step.drafted = Drafted(all_of.num_drafts[index], scores, log_prob)
        return True


def _rows_of(slots: np.ndarray, of: np.ndarray) -> np.ndarray | None:
    """[b] int64, where each slot stands among others (None: some do not)."""
    place = {slot: row for row, slot in enumerate(of.tolist())}
    rows = [place.get(slot, -1) for slot in slots.tolist()]
    return None if -1 in rows else np.array(rows, np.int64)
