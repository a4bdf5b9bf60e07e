"""What a profile times: the engine's own passes, and its drafters, at each batch and context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import Any, Literal

import numpy as np
import torch

from specsim.cost import Cell
from specsim.cost.table import NO_CACHE_OF_ITS_OWN
from specsim.cost.verify import bucket_paid
from specsim.kernels.verify import Proposal, Sampling
from specsim.live.drafters.batch import DraftBatch, LiveDrafter
from specsim.live.engine import LiveSetup
from specsim.live.profiler_timing import runs_of_a_sample
from specsim.live.runner import Rows

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Tokens a request in a verified step that runs eagerly; beyond them, powers of two up to the most tokens."""

PROMPT_TOKENS = (16, 64, 256, 1024, 2048)
"""Prompt tokens in a step, and tokens that an idle drafter missed."""

TEXT_VOCABULARY = 200
"""Distinct tokens in the texts that are drafted after: few enough for prompt lookup to find a match nearly always."""

GAINED = 2
"""Tokens that a request has gained since it was last drafted for, as under `profiler_steps.MEAN_ACCEPTANCE`."""

PASSES_OF_A_CAPTURE = 3
"""Passes of the layers when a graph is captured: two that warm up, and the one that is kept."""


@dataclass(frozen=True)
class Job:
    """One cell to measure.

    cell     what it measures; its seconds are filled in later
    passes   passes of the target's first layer that one run makes (None: not known)
    tokens   tokens that each of them feeds, padding included
    run      what is timed
    """

    cell: Cell
    passes: int | None
    tokens: int
    run: Callable[[], None]


@dataclass(frozen=True)
class Grid:
    """Where a profile measures; see `ProfileOptions`."""

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    max_tokens: int
    depth: int
    buckets: tuple[int, ...]

    def tokens(self, batch: int) -> list[int]:
        """Tokens of verified steps to measure at a batch, rising.

        Eager: evenly spread widths. Captured: the buckets from a plain step's to the deepest step's, and beyond the
        largest the first eager step and the deepest one.
        """
        if not self.buckets:
            doubled = [WIDTHS[-1] * 2**power for power in range(1, 20)]
            return [batch * width for width in (*WIDTHS, *doubled) if batch * width <= self.max_tokens]
        limit = self.buckets[-1]
        deepest = min(batch * (self.depth + 1), max(self.max_tokens, batch))
        first, last = bucket_paid(batch, self.buckets), bucket_paid(min(deepest, limit), self.buckets)
        eager = {max(limit + 1, batch), deepest} if deepest > limit else set()
        return sorted({size for size in self.buckets if first <= size <= last} | eager)

    @property
    def prompts(self) -> list[int]:
        """Prompt tokens to measure."""
        return [tokens for tokens in PROMPT_TOKENS if tokens <= self.max_tokens]

    def depths(self, passes: Literal["per_depth", "per_block"]) -> list[int]:
        """Draft depths to measure: both ends and some between; more where one pass proposes a whole block, whose tokens
        are padded to the next bucket.
        """
        few = {1, (self.depth + 1) // 3 or 1, self.depth // 2 or 1, self.depth}
        if passes == "per_depth" or not self.buckets:
            return sorted(few)
        return sorted(few | {depth for depth in (self.depth // 5, self.depth // 2 + 1, 3 * self.depth // 4) if depth})

    def longest(self, batch: int) -> int:
        """Most tokens a request of a batch has in its cache while it is measured."""
        widest = max([-(-tokens // batch) for tokens in self.tokens(batch)] + [self.depth + 1])
        prompts = max([0, *self.prompts]) if batch == 1 else 0
        return self.contexts[-1] + max(widest, prompts)


class Bench:
    """Puts requests of a given length on an engine's device side, and says what to time.

    setup       the device side, no request of which runs
    drafters    to be timed
    grid        where to measure
    """

    def __init__(self, setup: LiveSetup, drafters: Sequence[LiveDrafter], grid: Grid) -> None:
        self.setup, self.drafters, self.grid = setup, drafters, grid
        rng = np.random.default_rng(0)
        vocabulary = min(TEXT_VOCABULARY, setup.target.model.get_input_embeddings().weight.shape[0])
        text = rng.integers(0, vocabulary, tuple(setup.state.history.shape))
        setup.state.history.copy_(torch.from_numpy(text))
        for pool in (*setup.kv.keys, *setup.kv.values):
            pool.normal_()  # zeros would take less power than keys do

    def jobs(self, batch: int, context: int) -> Iterator[Job]:
        """Everything measured at one batch and context."""
        self.place(batch)
        for tokens in self.grid.tokens(batch):
            yield self.verify(batch, context, tokens)
        if batch == 1:
            for tokens in self.grid.prompts:
                yield self._prefill(context, tokens)
        for drafter in self.drafters:
            yield from self._drafts(drafter, batch, context)
            if batch == 1 and context == self.grid.contexts[0] and drafter.spec.kind not in NO_CACHE_OF_ITS_OWN:
                for tokens in self.grid.prompts:
                    yield self._switch(drafter, tokens)

    def leave(self) -> None:
        """Take the requests off again."""
        self.setup.pool.point(np.zeros_like(self.setup.pool.table))

    @property
    def shares_blocks(self) -> bool:
        """Whether there are fewer blocks than the largest batch needs, so that its requests read the same ones."""
        batch = self.grid.batches[-1]
        return batch * self.setup.pool.blocks_for(self.grid.longest(batch)) > self.setup.pool.num_blocks

    def place(self, batch: int) -> None:
        """Blocks for each request of a batch, in turns where there are too few of them."""
        each = self.setup.pool.blocks_for(self.grid.longest(batch))
        table = np.zeros_like(self.setup.pool.table)
        each = min(each, table.shape[1])
        numbers = np.arange(batch)[:, None] * each + np.arange(each)
        table[:batch, :each] = 1 + numbers % self.setup.pool.num_blocks
        self.setup.pool.point(table)

    def _rows(self, batch: int, first: int, tokens: int) -> tuple[Rows, np.ndarray]:
        """Tokens of a pass, spread evenly over the requests, the rest on the first ones."""
        counts = np.full(batch, tokens // batch, np.int64)
        counts[: tokens % batch] += 1
        fed = self.setup.state.on_device(np.stack([np.arange(batch), np.full(batch, first), counts]))
        return Rows.of(fed, tokens), counts

    def _batch(self, batch: int, context: int) -> DraftBatch:
        full = np.full(batch, context, np.int64)
        room = np.full(batch, self.grid.depth, np.int64)
        return self.setup.state.batch(np.arange(batch), full, room, np.zeros(batch, np.int64))

    def verify(self, batch: int, context: int, tokens: int) -> Job:
        """A pass whose anchors are the last of `context` tokens, and the verdict on what it says."""
        rows, counts = self._rows(batch, context - 1, tokens)
        runner, ops, zeros = self.setup.runner, self.setup.ops, torch.zeros_like(rows.slots)
        drafts = zeros.new_zeros((batch, int(counts.max()) - 1))
        sampling = Sampling(self.setup.state.temperature[:batch], zeros, zeros)

        def run() -> None:
            out = runner.run(rows)
            ops.verify(out.logits, out.query_start[:batch], Proposal(drafts, rows.counts - 1), sampling)

        cell = Cell("verify", 0.0, batch, tokens=tokens, context=context)
        return Job(cell, 1, runner.tokens_paid(tokens), run)

    def _prefill(self, context: int, tokens: int) -> Job:
        """A pass over one request's prompt tokens, and its first output token."""
        rows, _ = self._rows(1, context, tokens)
        runner, ops, zeros = self.setup.runner, self.setup.ops, torch.zeros_like(rows.slots)
        keep, drafts = rows.counts - 1, zeros.new_zeros((1, 0))
        sampling = Sampling(self.setup.state.temperature[:1], zeros, zeros)

        def run() -> None:
            ops.verify(runner.run(rows, keep).logits, zeros, Proposal(drafts, zeros), sampling)

        cell = Cell("prefill", 0.0, tokens=tokens, context=context)
        return Job(cell, 1, runner.tokens_paid(tokens), run)

    def _drafts(self, drafter: LiveDrafter, batch: int, context: int) -> Iterator[Job]:
        spec = drafter.spec
        exits = spec.kind == "early_exit"
        for depth in sorted({min(depth, spec.max_depth) for depth in self.grid.depths(spec.passes)}):
            cell = Cell("draft", 0.0, batch, depth=depth, context=context, drafter=spec.name)
            paid = self.setup.runner.tokens_paid(batch)
            turns = cycle(self._turns(drafter, batch, context, depth))

            def run(turns: Iterator[DraftBatch] = turns, depth: int = depth) -> None:
                drafted = drafter.draft(next(turns), depth)
                assert drafted.num_drafts.shape == (batch,), f"{tuple(drafted.num_drafts.shape)} asked of {batch}"

            yield Job(cell, depth if exits else None, paid if exits else 0, run)
            for slot in range(batch):
                drafter.release(slot)

    def _turns(self, drafter: LiveDrafter, batch: int, context: int, depth: int) -> list[DraftBatch]:
        """The requests at each run of a sample, up to `context`.

        In a step a drafter with a cache also takes in what was committed since its last draft, so that the requests
        are longer from run to run, and it has drafted for them before the first.
        """
        if drafter.spec.kind in NO_CACHE_OF_ITS_OWN:
            return [self._batch(batch, context)]
        before = range(runs_of_a_sample(self.setup.device), -1, -1)
        first, *turns = (self._batch(batch, max(1, context - GAINED * runs)) for runs in before)
        drafter.catch_up(first)
        drafter.draft(first, depth)
        return turns

    def _switch(self, drafter: LiveDrafter, tokens: int) -> Job:
        """One request whose whole text a drafter missed."""
        requests = self._batch(1, tokens + 1)

        def run() -> None:
            drafter.release(0)
            drafter.catch_up(requests)

        return Job(Cell("switch", 0.0, tokens=tokens, drafter=drafter.spec.name), None, 0, run)


def warm_up(setup: LiveSetup, job: Job) -> None:
    """Run once, and see that the layers process the tokens that the cell is about."""
    with _fed_tokens(setup.target.model) as fed:
        job.run()
    if job.passes is None:
        return
    captured = bool(setup.buckets) and job.tokens <= setup.buckets[-1]
    counts = (0, PASSES_OF_A_CAPTURE) if captured else (job.passes,)  # 0: a graph that another cell has captured
    assert all(tokens == job.tokens for tokens in fed), f"{job.cell.key}: {fed} tokens processed, {job.tokens} asked"
    assert len(fed) in counts, f"{job.cell.key}: {len(fed)} passes, {job.passes} asked"


@contextmanager
def _fed_tokens(model: Any) -> Iterator[list[int]]:
    """Tokens that each run of the model's first layer, which every exit shares, gets to process."""
    fed: list[int] = []
    layer = model.get_decoder().layers[0]
    hook = layer.register_forward_pre_hook(lambda _, arguments: fed.append(arguments[0].shape[:-1].numel()))
    try:
        yield fed
    finally:
        hook.remove()


def check_rising(name: str, values: Sequence[int]) -> str | None:
    """What is wrong with values that must be rising integers from 1."""
    if not values or values[0] < 1 or any(later <= earlier for earlier, later in pairwise(values)):
        return f"{name} {', '.join(map(str, values)) or 'none'}: must be rising integers from 1"
    return None
