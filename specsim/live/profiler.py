"""Measure what the phases of a step take on this machine, as the cells of a cost table.

Every cell is visited once a round, in rounds, so that a disturbance of the machine spreads over all of them instead of
spoiling a few; the median over rounds is kept. The first round warms up and is not counted.
"""

from __future__ import annotations

import datetime
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from specsim.cost import Cell, CostMeta, CostTable
from specsim.errors import InputError
from specsim.live.drafters import Drafter, EarlyExit, Ngram
from specsim.live.machine import hardware, versions
from specsim.live.models import LoadedModel, cache_keyword
from specsim.live.preallocated import prefilled_cache

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Tokens a request in a verified step; beyond them, powers of two up to the most tokens."""

PREFILL_TOKENS = (16, 64, 256)

NGRAM_VOCABULARY = 200
"""Distinct tokens in the texts that prompt lookup is timed on: few enough for a match at nearly every position."""


@dataclass(frozen=True)
class ProfileOptions:
    """What to measure.

    batches           requests in a step, rising
    contexts          tokens that each request has before the step, rising
    max_tokens        most tokens of a verified step
    depth             most draft tokens a request
    repeats           counted rounds
    time_budget       seconds after which measuring ends, once every cell was measured (None: no limit)
    name              the table's name
    command           the command that was given, for the manifest
    licence           terms of the numbers
    """

    batches: tuple[int, ...] = (1, 2, 4, 8, 16)
    contexts: tuple[int, ...] = (64, 256, 512)
    max_tokens: int = 256
    depth: int = 15
    repeats: int = 7
    time_budget: float | None = None
    name: str = "profiled"
    command: str = ""
    licence: str = "not stated"


@dataclass(frozen=True)
class Job:
    """One cell to measure.

    cell        what it measures; its seconds are filled in later
    fed         tokens that the model's layers must process in one run
    run         what is timed
    """

    cell: Cell
    fed: int
    run: Callable[[], None]


def profile(
    target: LoadedModel,
    drafters: Sequence[Drafter],
    options: ProfileOptions,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> CostTable:
    """Measure a cost table.

    target      the model whose steps are timed
    drafters    `ngram` and early exits of it
    options     what to measure
    report      called after each visit with visits done and visits planned
    returns     the table, labelled as measured

    Raises      InputError when the options do not fit together or the model
    """
    _check_options(options, target)
    samples: dict[Any, list[float]] = {}
    cells: dict[Any, Cell] = {}
    deadline = None if options.time_budget is None else time.perf_counter() + options.time_budget
    grid = [(batch, context) for context in options.contexts for batch in options.batches]
    visits = [(visit, *point) for visit in range(options.repeats + 1) for point in grid]
    for done, (visit, batch, context) in enumerate(visits):
        if visit > 1 and deadline is not None and time.perf_counter() > deadline:
            break
        for job in _jobs(target, drafters, options, batch, context):
            cells[job.cell.key] = job.cell
            seconds = _warm_up(target, job) if visit == 0 else _time(target.device, job.run)
            if visit > 0:
                samples.setdefault(job.cell.key, []).append(seconds)
        report(done + 1, len(visits))
    report(len(visits), len(visits))
    medians = [
        replace(cell, seconds=statistics.median(samples[key]), num_samples=len(samples[key]))
        for key, cell in cells.items()
    ]
    return CostTable.from_cells(_meta(target, options), _less_plain_pass(medians))


def _jobs(
    target: LoadedModel, drafters: Sequence[Drafter], options: ProfileOptions, batch: int, context: int
) -> Iterator[Job]:
    """Everything measured at one batch and context; the caches live no longer than the iteration."""
    yield from _passes(target, options, batch, context)
    for drafter in drafters:
        if isinstance(drafter, EarlyExit):
            yield from _exit_drafts(drafter, options.depth, batch, context)
        elif isinstance(drafter, Ngram):
            yield from _ngram_drafts(drafter, options.depth, batch, context)
        else:
            raise InputError(f"drafter {drafter.spec.name!r}: must be 'ngram' or an early exit to be profiled")


def _passes(target: LoadedModel, options: ProfileOptions, batch: int, context: int) -> Iterator[Job]:
    """Verified steps of the target, and at batch 1 the prefill of prompt tokens."""
    prefill = [tokens for tokens in PREFILL_TOKENS if tokens <= options.max_tokens] if batch == 1 else []
    widths = _widths(batch, options.max_tokens)
    cache = prefilled_cache(target.model, batch, context, room=max([*widths, *prefill]))
    for width in widths:
        cell = Cell("verify", 0.0, batch, tokens=batch * width, context=context)
        yield Job(cell, batch * width, _pass(target, cache, batch, width, keep=width))
    for tokens in prefill:
        cell = Cell("prefill", 0.0, tokens=tokens, context=context)
        yield Job(cell, tokens, _pass(target, cache, 1, tokens, keep=1))


def _widths(batch: int, max_tokens: int) -> list[int]:
    """Tokens a request to measure at a batch, rising, so that batch x width stays within the most tokens."""
    doubled = [WIDTHS[-1] * 2**power for power in range(1, 20)]
    return [width for width in (*WIDTHS, *doubled) if batch * width <= max_tokens]


def _pass(target: LoadedModel, cache: Any, batch: int, width: int, keep: int) -> Callable[[], None]:
    """A pass of [batch, width] tokens over the cache, the argmax of the last `keep` of each row, and its undoing."""
    tokens = torch.ones((batch, width), dtype=torch.int64, device=target.device)

    def run() -> None:
        logits = target.model(
            tokens, use_cache=True, logits_to_keep=keep, **{cache_keyword(target.model): cache}
        ).logits
        chosen = logits.argmax(-1)
        assert chosen.shape == (batch, keep), f"{tuple(chosen.shape)} tokens chosen, {(batch, keep)} asked"
        cache.crop(-width)

    return run


def _exit_drafts(drafter: EarlyExit, depth: int, batch: int, context: int) -> Iterator[Job]:
    cache = prefilled_cache(drafter.model, batch, context, room=depth)
    tokens = torch.ones(batch, dtype=torch.int64, device=drafter.model.device)

    def draft(drafts: int) -> Callable[[], None]:
        def run() -> None:
            token_ids, _ = drafter.draft(cache, tokens, drafts)
            assert token_ids.shape == (batch, drafts), f"{tuple(token_ids.shape)} drafts, {(batch, drafts)} asked"
            cache.crop(-drafts)

        return run

    for drafts in _depths(depth):
        cell = Cell("draft", 0.0, batch, depth=drafts, context=context, drafter=drafter.spec.name)
        yield Job(cell, batch * drafts, draft(drafts))


def _ngram_drafts(drafter: Ngram, depth: int, batch: int, context: int) -> Iterator[Job]:
    rng = np.random.default_rng(context)
    texts = [rng.integers(0, NGRAM_VOCABULARY, context) for _ in range(batch)]

    def draft(searcher: Ngram) -> Callable[[], None]:
        return lambda: [searcher.propose(text) for text in texts].clear()

    for drafts in _depths(depth):
        cell = Cell("draft", 0.0, batch, depth=drafts, context=context, drafter=drafter.spec.name)
        yield Job(cell, 0, draft(Ngram(drafts)))


def _depths(depth: int) -> list[int]:
    """Draft depths to measure: both ends and one between."""
    return sorted({1, (depth + 1) // 3 or 1, depth})


def _warm_up(target: LoadedModel, job: Job) -> float:
    """Run once, and see that the layers process the tokens that the cell is about."""
    with _fed_tokens(target.model) as fed, torch.inference_mode():
        job.run()
    assert sum(fed) == job.fed, f"{job.cell.key}: {sum(fed)} tokens processed, {job.fed} asked"
    return 0.0


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


def _time(device: str, run: Callable[[], None]) -> float:
    """Seconds of one run, the device's queue empty before and after."""
    wait = torch.cuda.synchronize if torch.device(device).type == "cuda" else lambda: None
    with torch.inference_mode():
        wait()
        started = time.perf_counter()
        run()
        wait()
        return time.perf_counter() - started


def _less_plain_pass(cells: Sequence[Cell]) -> list[Cell]:
    """Prefill cells as what they add to a step: less the pass over one token, which the step pays anyway."""
    plain = {cell.context: cell.seconds for cell in cells if cell.phase == "verify" and cell.tokens == 1}
    return [
        replace(cell, seconds=max(0.0, cell.seconds - plain[cell.context])) if cell.phase == "prefill" else cell
        for cell in cells
    ]


def _check_options(options: ProfileOptions, target: LoadedModel) -> None:
    for name in ("batches", "contexts"):
        values = getattr(options, name)
        if not values or values[0] < 1 or any(b <= a for a, b in pairwise(values)):
            raise InputError(f"{name} {', '.join(map(str, values)) or 'none'}: must be rising integers from 1")
    for name in ("depth", "repeats", "max_tokens"):
        if getattr(options, name) < 1:
            raise InputError(f"{name} {getattr(options, name)}: must be at least 1")
    if options.batches[0] != 1:
        raise InputError(f"batches start at {options.batches[0]}: must start at 1, where prompts are timed")
    if options.batches[-1] > options.max_tokens:
        raise InputError(f"batch {options.batches[-1]} needs more than {options.max_tokens} tokens: raise max_tokens")
    limit = target.model.config.get_text_config().max_position_embeddings
    if options.contexts[-1] + max(options.max_tokens, options.depth) > limit:
        raise InputError(
            f"context {options.contexts[-1]} with {max(options.max_tokens, options.depth)} more tokens is beyond the "
            f"{limit} positions of {target.name!r}"
        )


def _meta(target: LoadedModel, options: ProfileOptions) -> CostMeta:
    return CostMeta(
        name=options.name,
        label="measured",
        engine=f"transformers {versions()['transformers']}, eager, KV cache written in place",
        versions=versions(),
        hardware=hardware(target.device),
        dtype=target.dtype,
        model=target.name,
        date=datetime.date.today(),
        source="specsim profile",
        licence=options.licence,
        method=(
            f"Medians of up to {options.repeats} rounds over all cells after one warm-up round. Verify: one pass of "
            "batch x (1 + drafts) tokens, all requests verifying equally many over contexts of equal length, with the "
            "argmax at every token. Draft: greedy drafting with confidences for all requests; an early exit reuses the "
            "target's cache. Prefill: one pass over prompt tokens of one request, less the pass over one token. "
            f"Command: {options.command}"
        ),
        remarks=(
            "Planning and host work are not measured and cost nothing here.",
            "A step whose requests verify different numbers of tokens is priced as if they were spread evenly.",
        ),
    )
