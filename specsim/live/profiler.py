"""Measure what the phases of a step take on this machine, as the cells of a cost table.

Passes are the engine's own, over its paged cache: eager on a CPU, captured graphs of token buckets on CUDA. Every cell
is visited once a round, in rounds, so that a disturbance of the machine spreads over all of them instead of
spoiling a few; the median over rounds is kept. The first round warms up and is not counted.
"""

from __future__ import annotations

import datetime
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

from specsim.cost import Cell, CostMeta, CostTable
from specsim.errors import InputError
from specsim.live.drafters import Drafter
from specsim.live.drafters.batch import LiveDrafter
from specsim.live.drafters.build_live import build_live_drafter
from specsim.live.engine import CPU_KV_BYTES, LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.machine import hardware, versions
from specsim.live.models import LoadedModel
from specsim.live.paged_kv import PagedKV
from specsim.live.profiler_cells import GAINED, Bench, Grid, check_rising, warm_up
from specsim.live.profiler_steps import StepBench, tokens_of_steps
from specsim.live.profiler_timing import Stopwatch
from specsim.serving import EngineConfig

BUCKETS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
"""Token counts captured as CUDA graphs unless told otherwise, as far as a profile goes."""

BLOCK_SIZE = 16

DrafterMaker: TypeAlias = Callable[[LiveSetup], LiveDrafter]
"""Builds a drafter on the device side of the engine that is profiled."""


@dataclass(frozen=True)
class ProfileOptions:
    """What to measure.

    batches           requests in a step, rising
    contexts          tokens that each request has before the step, rising
    max_tokens        most tokens of a verified step
    depth             most draft tokens a request
    buckets           token counts captured as CUDA graphs, rising (None: BUCKETS below the most tokens, and those;
                      none on a CPU)
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
    buckets: tuple[int, ...] | None = None
    repeats: int = 7
    time_budget: float | None = None
    name: str = "profiled"
    command: str = ""
    licence: str = "not stated"

    def __post_init__(self) -> None:
        for key in ("name", "licence"):
            if not getattr(self, key).strip():
                raise InputError(f"{key} is empty; it must hold a text")
        for name, values in (("batches", self.batches), ("contexts", self.contexts), ("buckets", self.buckets)):
            if values is not None and (fault := check_rising(name, values)):
                raise InputError(fault)
        for name in ("depth", "repeats", "max_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)}: must be at least 1")
        if self.batches[0] != 1:
            raise InputError(f"batches start at {self.batches[0]}: must start at 1, where prompts are timed")
        if self.batches[-1] > self.max_tokens:
            raise InputError(f"batch {self.batches[-1]} needs more than {self.max_tokens} tokens: raise max_tokens")
        if self.buckets is not None and self.buckets[-1] > self.max_tokens:
            raise InputError(f"bucket {self.buckets[-1]} is above the {self.max_tokens} tokens of max_tokens")

    def grid(self, device: str) -> Grid:
        """Where to measure on a device."""
        buckets: tuple[int, ...] = ()
        if torch.device(device).type == "cuda":
            within = [size for size in BUCKETS if size < self.max_tokens]
            buckets = (*within, self.max_tokens) if self.buckets is None else self.buckets
        return Grid(self.batches, self.contexts, self.max_tokens, self.depth, buckets)

    @property
    def num_visits(self) -> int:
        """Visits reported: of each batch and context in each round, and of each batch for its steps."""
        return (self.repeats + 1) * len(self.batches) * len(self.contexts) + len(self.batches)


def profile(
    target: LoadedModel,
    drafters: Sequence[Drafter | DrafterMaker],
    options: ProfileOptions,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> CostTable:
    """Measure a cost table.

    target      the model whose steps are timed
    drafters    definitions of prompt lookup and early exits, or functions that build a live drafter
    options     what to measure
    report      called after each visit with visits done and visits planned
    returns     the table, labelled as measured

    Raises      InputError when the options do not fit together or the model
    """
    _check_options(options, target)
    grid = options.grid(target.device)
    setup = profiling_setup(target, grid)
    live = [
        drafter(setup) if callable(drafter) else build_live_drafter(drafter.spec.name, setup, options.depth)
        for drafter in drafters
    ]
    names = [drafter.spec.name for drafter in live]
    if len(set(names)) != len(names):
        raise InputError(f"drafters {', '.join(names)}: each is measured once; give different ones")
    bench = Bench(setup, live, grid)
    meta = _meta(target, options, bench)
    cells = _measure(bench, options, report)
    bench.leave()
    steps = StepBench(setup, CostTable.from_cells(meta, cells), grid.contexts[0], grid.depth)
    for left, batch in reversed(list(enumerate(reversed(grid.batches)))):
        cells.extend(steps.cells(batch))
        report(options.num_visits - left, options.num_visits)
    return CostTable.from_cells(meta, cells)


def profiling_setup(target: LoadedModel, grid: Grid) -> LiveSetup:
    """The device side of an engine with room for the largest batch at the longest context and for whole steps, as far
    as memory goes."""
    text = target.model.config.get_text_config()
    memory, device = CPU_KV_BYTES, torch.device(target.device).type
    if device == "cuda":
        memory = int(torch.cuda.mem_get_info(target.device)[0] * EngineOptions().kv_memory)
    each = PagedKV.bytes_per_block(text, BLOCK_SIZE, getattr(torch, target.dtype))
    longest = max(grid.longest(batch) for batch in grid.batches)
    steps = min(grid.contexts[0] + tokens_of_steps(device, grid.depth), longest) + grid.depth + 1
    wanted = max(batch * -(-max(grid.longest(batch), steps) // BLOCK_SIZE) for batch in grid.batches)
    config = EngineConfig(
        max_num_seqs=grid.batches[-1],
        block_size=BLOCK_SIZE,
        num_kv_blocks=max(1, min(wanted, memory // each)),
        max_model_len=longest,
    )
    return LiveSetup(target, config, grid.depth, EngineOptions(), grid.buckets)


def _measure(bench: Bench, options: ProfileOptions, report: Callable[[int, int], None]) -> list[Cell]:
    """All cells but those of whole steps, each the median of its rounds."""
    samples: dict[Any, list[float]] = {}
    cells: dict[Any, Cell] = {}
    watch = Stopwatch(bench.setup.device)
    deadline = None if options.time_budget is None else time.perf_counter() + options.time_budget
    points = [(batch, context) for context in options.contexts for batch in options.batches]
    done = 0
    for visit in range(options.repeats + 1):
        timed = []
        for batch, context in points:
            if visit > 1 and deadline is not None and time.perf_counter() > deadline:
                break
            timed += _visit(bench, watch if visit else None, batch, context)
            done += 1
            report(done, options.num_visits)
        cells |= {cell.key: cell for cell in timed}
        for cell, seconds in zip(timed if visit else [], watch.end_round(), strict=True):
            samples.setdefault(cell.key, []).append(seconds)
    report(options.num_visits - len(options.batches), options.num_visits)
    medians = [
        replace(cell, seconds=statistics.median(samples[key]), num_samples=len(samples[key]))
        for key, cell in cells.items()
    ]
    return _less_plain_pass(medians)


def _visit(bench: Bench, watch: Stopwatch | None, batch: int, context: int) -> list[Cell]:
    """Time every cell of one batch and context, or (None) warm it up; the cells, in order."""
    visited = []
    with torch.inference_mode():
        for job in bench.jobs(batch, context):
            if watch is None:
                warm_up(bench.setup, job)
            else:
                watch.sample(job.run)
            visited.append(job.cell)
    return visited


def _less_plain_pass(cells: Sequence[Cell]) -> list[Cell]:
    """Prefill cells as what they add to a step: less the plain pass of one request, which the step pays anyway."""
    alone = sorted(
        (cell for cell in cells if cell.phase == "verify" and cell.batch == 1), key=lambda c: -(c.tokens or 0)
    )
    plain = {cell.context: cell.seconds for cell in alone}
    return [
        replace(cell, seconds=max(0.0, cell.seconds - plain[cell.context])) if cell.phase == "prefill" else cell
        for cell in cells
    ]


def _check_options(options: ProfileOptions, target: LoadedModel) -> None:
    if options.buckets is not None and torch.device(target.device).type != "cuda":
        raise InputError(f"buckets on {target.device!r}: only on cuda are passes captured as graphs")
    limit = target.model.config.get_text_config().max_position_embeddings
    if options.contexts[-1] + max(options.max_tokens, options.depth) > limit:
        raise InputError(
            f"context {options.contexts[-1]} with {max(options.max_tokens, options.depth)} more tokens is beyond the "
            f"{limit} positions of {target.name!r}"
        )


def _meta(target: LoadedModel, options: ProfileOptions, bench: Bench) -> CostMeta:
    buckets = bench.grid.buckets
    passes = f"CUDA graphs of {len(buckets)} token buckets" if buckets else "eager"
    return CostMeta(
        name=options.name,
        label="measured",
        engine=f"specsim {versions()['specsim']}, paged KV cache, {bench.setup.ops.name}, {passes}",
        versions=versions(),
        hardware=hardware(target.device),
        dtype=target.dtype,
        model=target.name,
        date=datetime.date.today(),
        source="specsim profile",
        licence=options.licence,
        capture_sizes=buckets,
        method=(
            f"{target.origin}. Medians of up to {options.repeats} rounds over all cells after one warm-up round. "
            "Verify: one pass of the tokens over contexts of equal length, spread evenly over the requests, the rest "
            "on the first ones, and the verdict on every draft. Draft: the live drafter for all requests; one with a "
            f"cache takes in {GAINED} tokens that each request gained since its last draft. Prefill: one pass over "
            "prompt tokens of one request, less the pass over one token. Switch: a text of one request that "
            "the drafter missed. Host: what plain steps of the running engine take beyond the pass. Plan: what "
            "steps under D-cut take more than plain ones beside drafting and the pass, by the steps' own clocks: "
            "planning, and the host's work with drafts. On CUDA also: hidden, what those take more yet where drafting "
            "takes no time; late, what steps take more when nothing is launched ahead; join, what the two steps after "
            "requests ended together, and as many with short prompts joined, take more than the steps before, less "
            "the prompts. "
            f"Command: {options.command or 'from Python'}"
        ),
        remarks=_remarks(bench),
    )


def _remarks(bench: Bench) -> tuple[str, ...]:
    remarks = ["A step whose requests verify different numbers of tokens is priced as if they were spread evenly."]
    if bench.setup.ops.name == "triton":
        remarks.append("Plan cells are of the kernel that plans for D-cut; policies planned by array code take longer.")
    remarks.extend(f"Drafting by {drafter.spec.name}: {drafter.score_source}." for drafter in bench.drafters)
    if bench.shares_blocks:
        remarks.append("Memory did not hold the largest batch at the longest context: its requests read shared blocks.")
    return tuple(remarks)
