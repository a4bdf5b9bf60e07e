"""One pass of the target over a step's anchors, kept drafts and prompt chunks, and what it says of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from specsim.kernels.verify import Verdict
from specsim.live.acceptor import Acceptor, Pending
from specsim.live.drafters.batch import DraftBatch
from specsim.live.runner import ModelRunner, PassOutput, Rows
from specsim.live.state import SlotState
from specsim.live.step import Step
from specsim.serving import Slots


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """The first token of each prompt that the step completed.

    slots    [P] int64 numpy
    verdict  [P] each, on the device
    """

    slots: np.ndarray
    verdict: Verdict


class Verifier:
    """Runs the target and lets drafts be judged.

    runner    passes of the target
    state     tokens and sampling of every slot
    slots     lengths and progress of every slot
    acceptor  who judges
    """

    def __init__(self, runner: ModelRunner, state: SlotState, slots: Slots, acceptor: Acceptor) -> None:
        self._runner, self._state, self._slots, self._acceptor = runner, state, slots, acceptor

    def run(self, step: Step) -> tuple[Verdict | None, FirstTokens | None]:
        """Feed everything in one pass, judge the drafts, and draw the first token of each finished prompt."""
        out = self._pass(step)
        verdict = None if step.batch is None else self._judge(step, step.batch, out)
        return verdict, self._first_tokens(step, out)

    def feed(self, step: Step) -> None:
        """Put together what the pass feeds, which takes launches that need not wait for the plan's sum."""
        parts = []
        if step.batch is not None:
            assert step.batch.fed is not None
            if step.draft is not None:
                assert step.num_verify is not None
                step.batch.fed[2].add_(step.num_verify)
            parts.append(step.batch.fed)
        if step.chunks:
            slots, sizes = np.array(step.chunks, np.int64).T
            computed = np.array([self._slots.computed[slot] for slot in slots.tolist()], np.int64)
            parts.append(self._state.on_device(np.stack([slots, computed, sizes])))
        step.fed = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _pass(self, step: Step) -> PassOutput:
        assert step.fed is not None
        sizes = [size for _, size in step.chunks]
        decodes = 0 if step.batch is None else len(step.batch) + step.budget
        total = decodes + sum(sizes)
        step.paid = self._runner.tokens_paid(total)
        if step.out is not None:
            return step.out
        return self._runner.run(Rows.of(step.fed, total), self._kept(decodes, sizes) if sizes else None)

    def _kept(self, decodes: int, sizes: list[int]) -> torch.Tensor:
        """Rows whose logits matter: all of the decodes, and the last of each chunk."""
        return self._state.on_device(np.concatenate([np.arange(decodes), decodes + np.cumsum(sizes) - 1]))

    def _judge(self, step: Step, batch: DraftBatch, out: PassOutput) -> Verdict:
        assert step.num_verify is not None
        depth = step.order.depth if step.drafted is not None else 0
        places = batch.device_lengths[:, None] + torch.arange(depth, device=batch.device_lengths.device)
        step.device_tokens = self._state.history[batch.device_slots[:, None], places]
        arm = step.order.arm if depth else -1
        pending = Pending(batch, arm, step.device_tokens, step.num_verify, step.drafted)
        verdict = self._acceptor.judge(out.logits, out.query_start[: len(batch)], pending)
        last = batch.device_lengths + verdict.num_accepted
        # Where a law is none there is no token; a pass that was launched ahead must have one to read all the same.
        self._state.history[batch.device_slots, last] = verdict.next_token.clamp(min=0)
        return verdict

    def _first_tokens(self, step: Step, out: PassOutput) -> FirstTokens | None:
        slots = self._slots
        done = [
            index
            for index, (slot, size) in enumerate(step.chunks)
            if slots.computed[slot] + size == slots.to_compute[slot]
        ]
        if not done:
            return None
        decodes = 0 if step.batch is None else len(step.batch) + step.budget
        finishing = np.array([step.chunks[index][0] for index in done], np.int64)
        lengths = np.array([slots.to_compute[slot] for slot in finishing.tolist()], np.int64)
        none = np.zeros_like(finishing)
        batch = self._state.batch(finishing, lengths, none, slots.emitted[finishing])
        rows = self._state.on_device(decodes + np.array(done, np.int64))
        nothing = batch.device_slots.new_zeros((len(finishing), 0))
        verdict = self._acceptor.judge(out.logits, rows, Pending(batch, -1, nothing, batch.device_room, None))
        self._state.history[batch.device_slots, batch.device_lengths] = verdict.next_token.clamp(min=0)
        return FirstTokens(finishing, verdict)
