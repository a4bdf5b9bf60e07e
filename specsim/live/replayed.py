"""Acceptance replay: real passes run, and a recorded trace says what is drafted and accepted.

What a policy is worth on a device can so be measured without the weights of a drafter, or of the target. Every output
of such a run carries the acceptor's label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from specsim.core import SCORES, Blocks, DrafterSpec, Score
from specsim.errors import InputError
from specsim.kernels.verify import Verdict
from specsim.live.acceptor import Acceptor, Pending
from specsim.live.commit import Emission
from specsim.live.drafters.batch import DraftBatch, Drafted, Stop
from specsim.live.drafters.early_exit import first_layers
from specsim.live.engine import Engine, LiveSetup
from specsim.live.requests import LiveRequest
from specsim.live.runner import ModelRunner, Rows
from specsim.live.sampling import SamplingParams
from specsim.live.step import Step
from specsim.trace import TraceLike

LAYERS = re.compile(r"layers:([1-9][0-9]{0,3})")

SPREAD = 2654435761
"""Knuth's multiplier: neighbouring positions get tokens far apart, so that embeddings are read as in real text."""


@dataclass(frozen=True, slots=True)
class ArmBlocks:
    """One drafter's recorded blocks, the positions of all requests end to end, on the device.

    num_drafts    [P] int64
    num_accepted  [P] int64
    scores        each score, [P, D] float64
    """

    num_drafts: torch.Tensor
    num_accepted: torch.Tensor
    scores: dict[Score, torch.Tensor]


class Recording:
    """A position-indexed trace on the device of an engine.

    trace   whose requests the engine's requests replay; their `index` says which
    setup   the engine's device side

    acceptable  [S] int64, leading drafts of each slot's latest block that the target accepts

    Tokens are fillers: request i emits the same ones at its positions whatever the policy, accepted drafts are among
    them, and rejected ones are not.

    Raises  InputError for a trace that cannot be replayed exactly
    """

    def __init__(self, trace: TraceLike, setup: LiveSetup) -> None:
        if trace.kind != "position_indexed":
            raise InputError(
                f"a {trace.kind} trace holds only the blocks its own policy visited, so another policy cannot "
                "be replayed on it exactly; record a position_indexed trace with `specsim record`"
            )
        self.trace, self.state = trace, setup.state
        self.label = f"acceptance replayed from {trace.manifest.name}"
        self.vocabulary = int(setup.target.model.get_input_embeddings().weight.shape[0])
        lengths = np.asarray(trace.requests.num_output_tokens, np.int64)
        self._first = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)[:-1]])
        self.arms = [self._load(arm, spec, setup.device) for arm, spec in enumerate(trace.drafters)]
        self.acceptable = torch.zeros(len(setup.state.history), dtype=torch.int64, device=setup.device)
        self._rows: tuple[DraftBatch, torch.Tensor] | None = None

    def rows(self, batch: DraftBatch) -> torch.Tensor:
        """[B] int64, where each request stands: the row of its current position."""
        if self._rows is None or self._rows[0] is not batch:
            first = self._first[self.state.indices[batch.slots]]
            self._rows = (batch, self.state.on_device(first) + batch.positions)
        return self._rows[1]

    def path(self, rows: torch.Tensor) -> torch.Tensor:
        """Token id at each row, int64."""
        return (rows * SPREAD % 2**32) % self.vocabulary

    def prompt(self, index: int) -> np.ndarray:
        """[T] int64, fillers as long as the recorded prompt of a request."""
        places = np.arange(int(self.trace.requests.num_prompt_tokens[index]), dtype=np.int64)
        return (places + 1 + index) * SPREAD % 2**32 % self.vocabulary

    def _load(self, arm: int, spec: DrafterSpec, device: torch.device) -> ArmBlocks:
        blocks = [self._checked(index, arm, spec) for index in range(len(self.trace))]
        scores: dict[Score, torch.Tensor] = {
            score: torch.from_numpy(np.concatenate([block.scores[score] for block in blocks], dtype=np.float64)).to(
                device
            )
            for score in SCORES
            if score in spec.scores
        }
        counts = [np.concatenate([getattr(b, name) for b in blocks]) for name in ("num_drafts", "num_accepted")]
        num_drafts, num_accepted = (torch.from_numpy(count.astype(np.int64)).to(device) for count in counts)
        return ArmBlocks(num_drafts, num_accepted, scores)

    def _checked(self, index: int, arm: int, spec: DrafterSpec) -> Blocks:
        """A request's blocks, refused where acceptance was not observed as far as the output goes."""
        blocks = self.trace.blocks(index, arm)
        positions = len(blocks.num_drafts)
        ahead = np.minimum(blocks.num_drafts, positions - np.arange(positions))
        if (blocks.num_verified < ahead).any():
            raise InputError(
                f"request {int(self.trace.requests.request_id[index])}, drafter {spec.name}: acceptance was censored "
                "inside the output, so it cannot be replayed exactly"
            )
        return blocks


class ReplayedDrafter:
    """Proposes what a trace recorded, at a cost of its own.

    recording   the trace
    arm         index of the drafter in it
    setup       the engine's device side
    cost        `free`, or `layers:K`: a pass over each request's anchor and as many tokens as it drafts, through the
                target's first K layers and its output head, which is what a block drafter of that size takes

    Raises      InputError for another cost, or more layers than the target has
    """

    def __init__(self, recording: Recording, arm: int, setup: LiveSetup, cost: str = "free") -> None:
        self._recording, self._blocks = recording, recording.arms[arm]
        self.spec: DrafterSpec = recording.trace.drafters[arm]
        self.cost = cost
        self.score_source = f"{recording.label}; drafting itself is {cost}"
        self._stand_in = None if cost == "free" else _stand_in(setup, cost)

    def draft(self, batch: DraftBatch, depth: int, stop: Stop | None = None) -> Drafted:
        """See `LiveDrafter.draft`; one pass proposes the whole block, so it never stops early."""
        if self._stand_in is not None:
            self._run_stand_in(self._stand_in, batch, depth)
        # A request that has just ended may still be in a batch that drafts ahead; behind the last one is no row.
        rows = self._recording.rows(batch).clamp(max=len(self._blocks.num_drafts) - 1)
        num_drafts = torch.minimum(self._blocks.num_drafts[rows], batch.device_room.clamp(0, depth))
        step = torch.arange(depth, device=rows.device)
        acceptable = self._blocks.num_accepted[rows]
        self._recording.acceptable[batch.device_slots] = acceptable
        wrong = step >= acceptable[:, None]
        tokens = (self._recording.path(rows[:, None] + step) + wrong) % self._recording.vocabulary
        batch.history[batch.device_slots[:, None], batch.device_lengths[:, None] + step] = tokens
        there = step < num_drafts[:, None]
        scores = {name: torch.where(there, values[rows, :depth], 0.0) for name, values in self._blocks.scores.items()}
        return Drafted(num_drafts, scores)

    def drafts_ahead(self, batch: DraftBatch) -> bool:
        """See `DraftsAhead.drafts_ahead`."""
        return True

    def drafted_ahead(self, batch: DraftBatch) -> None:
        """See `DraftsAhead.drafted_ahead`; nothing is kept."""

    def catch_up(self, batch: DraftBatch) -> None:
        """Nothing can be missed: the recording knows every position."""

    def release(self, slot: int) -> None:
        """Nothing is kept."""

    @staticmethod
    def _run_stand_in(runner: ModelRunner, batch: DraftBatch, depth: int) -> None:
        total = len(batch) + int(np.clip(batch.room, 0, depth).sum())
        counts = batch.device_room.clamp(0, depth) + 1
        logits = runner.run(Rows(batch.device_slots, batch.device_lengths - 1, counts, total)).logits
        logits.max(dim=-1)


class ReplayedAcceptor:
    """Accepts as many drafts as the recording says.

    The target's verdict is worked out all the same, because that takes time, and is dropped, but for faults.

    recording   the trace
    target      who would judge
    """

    def __init__(self, recording: Recording, target: Acceptor) -> None:
        self._recording, self._target = recording, target
        self.label = recording.label

    def judge(self, logits: torch.Tensor, rows: torch.Tensor, pending: Pending) -> Verdict:
        """See `Acceptor.judge`."""
        said = self._target.judge(logits, rows, pending)
        at = self._recording.rows(pending.batch)
        accepted = torch.zeros_like(at)
        if pending.arm >= 0:
            accepted = torch.minimum(self._recording.acceptable[pending.batch.device_slots], pending.num_verify)
        token = torch.where(said.faulty < 0, self._recording.path(at + accepted), -1)
        return Verdict(accepted, token, said.faulty)


class ClosedLoad:
    """Keeps as many requests in an engine as clients: each submits its next when its last one has finished.

    engine      where
    recording   whose requests
    order       rows of the trace, in the order they are submitted
    """

    def __init__(self, engine: Engine, recording: Recording, order: Iterator[int]) -> None:
        self._engine, self._recording, self._order = engine, recording, order
        self._longest_prompt: int | None = None
        engine.observers.append(self)

    def start(self, concurrency: int) -> None:
        """Submit the first requests."""
        for _ in range(concurrency):
            self._submit()

    @contextmanager
    def short_prompts(self, tokens: int) -> Iterator[None]:
        """Inside, prompts are cut to so many tokens."""
        self._longest_prompt = tokens
        try:
            yield
        finally:
            self._longest_prompt = None

    def stop(self) -> None:
        """End every request, so that another engine may have the setup."""
        self._engine.observers.remove(self)
        slots = self._engine.scheduler.slots
        for request in [*self._engine.scheduler.waiting, *map(slots.request, self._engine.scheduler.running)]:
            assert isinstance(request, LiveRequest)
            self._engine.cancel(request)
        self._engine.run()

    def on_step(self, row: np.void, step: Step, emission: Emission | None) -> None:
        """See `Observer.on_step`."""

    def on_request(self, request: LiveRequest) -> None:
        """See `Observer.on_request`."""
        self._submit()

    def _submit(self) -> None:
        index = next(self._order)
        output = int(self._recording.trace.requests.num_output_tokens[index])
        params = SamplingParams(max_tokens=output, ignore_eos=True)
        domain = self._recording.trace.requests.domains[int(self._recording.trace.requests.domain[index])]
        prompt = self._recording.prompt(index)[: self._longest_prompt]
        self._engine.submit(prompt, params, domain=domain, index=index)


def replayed_drafters(recording: Recording, setup: LiveSetup, costs: Sequence[str]) -> list[ReplayedDrafter]:
    """A drafter for each of the trace's.

    costs   what each takes, see `ReplayedDrafter`
    """
    drafters = recording.trace.drafters
    if len(costs) != len(drafters):
        raise InputError(f"{len(costs)} draft costs for {len(drafters)} drafters of the trace: one each")
    return [ReplayedDrafter(recording, arm, setup, cost) for arm, cost in enumerate(costs)]


def _stand_in(setup: LiveSetup, cost: str) -> ModelRunner:
    """Passes of the target's first layers, over its own cache: what they write is written again by the target."""
    found = LAYERS.fullmatch(cost)
    num_layers = int(found[1]) if found else 0
    if not 1 <= num_layers <= setup.target.num_layers:
        raise InputError(
            f"draft cost {cost!r}: must be 'free' or 'layers:K' with K from 1 to {setup.target.num_layers}, the layers "
            f"of {setup.target.name!r}"
        )
    model = first_layers(setup.target.model, num_layers)
    return ModelRunner(model, setup.kv, setup.pool, setup.state.history, setup.ops, setup.buckets)
