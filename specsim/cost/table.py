"""CostTable: what a step costs, looked up in measured cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specsim.core import DrafterSpec, StepCost, StepSeconds
from specsim.cost.cells import Cell, Phase, check_cells
from specsim.cost.curves import Edge
from specsim.cost.envelope import lower_envelope
from specsim.cost.files import read_table, write_table
from specsim.cost.meta import CostMeta, Ranges
from specsim.cost.phases import Phases
from specsim.cost.verify import Floats, bucket_paid
from specsim.errors import InputError

CONTEXT_GRID = 64
"""Tokens. Mean contexts are rounded up to this grid, so that simulator and live engine ask for the same cell."""

CACHE_ENTRIES = 2048

NO_CACHE_OF_ITS_OWN = ("ngram", "early_exit")
"""Kinds of drafters that read the tokens or the target's cache, so that nothing is to be caught up."""


CHANGES: tuple[Phase, ...] = ("late", "late_draft", "join")
"""Phases of steps whose requests change, which an engine is not asked for when it decides."""


class _Entry(NamedTuple):
    """One cached look-up: the step at every budget, whole and by phase."""

    cost: StepCost
    draft: float
    plan: float
    verify: Floats
    host: float
    by_budget: dict[int, StepSeconds]  # those asked for so far


class CostTable:
    """Seconds of one engine step, by what it does.

    Inside capture sizes cost is a staircase: a step pays for the bucket it is padded to. Above them, and where there
    are none, it is interpolated between measured cells. Every cell is reproduced exactly.
    """

    def __init__(
        self, meta: CostMeta, cells: tuple[Cell, ...], phases: Phases, prices: Mapping[str, str], extrapolate: bool
    ) -> None:
        """Use `open` or `from_cells`.

        meta         what the table says of itself, ranges filled in
        cells        checked cells
        phases       look-ups built from the cells
        prices       drafters of a trace priced as drafters of this table
        extrapolate  whether questions outside the ranges are answered, with a note
        """
        self.meta = meta
        self.cells = cells
        self._phases = phases
        self._prices = dict(prices)
        self._edge = Edge(f"cost table {meta.name}", extrapolate)
        self._entry = lru_cache(CACHE_ENTRIES)(self._look_up)
        self._deepest: Callable[[int, int], list[Floats]] = lru_cache(CACHE_ENTRIES)(lambda batch, context: [])
        self._gain = lru_cache(CACHE_ENTRIES)(self._gain_of_launching_ahead)
        self._note_what_holds_always()

    @classmethod
    def from_cells(cls, meta: CostMeta, cells: Iterable[Cell], extrapolate: bool = False) -> CostTable:
        """A table in memory.

        meta     what it says of itself; ranges None: the span of the cells
        cells    in any order
        Raises   InputError when a cell is wrong, or two are the same
        """
        checked = check_cells(cells, meta.capture_sizes, f"cost table {meta.name}")
        meta = meta.model_copy(update={"ranges": _ranges(meta, checked)})
        return cls(meta, checked, Phases(checked, meta.capture_sizes), {}, extrapolate)

    @classmethod
    def open(cls, path: str | Path, extrapolate: bool = False) -> CostTable:
        """The table in a folder, or a shipped one by name.

        Raises   InputError when anything in the folder is wrong
        """
        meta, cells = read_table(path)
        return cls.from_cells(meta, cells, extrapolate)

    def save(self, path: str | Path) -> None:
        """Write the table to a folder, which is made if needed."""
        write_table(path, self.meta, self.cells)

    def fresh(self) -> CostTable:
        """The same table with nothing said yet, so that the notes of one run stay its own."""
        return CostTable(self.meta, self.cells, self._phases, self._prices, self._edge.extrapolate)

    def with_draft_costs(self, prices: Mapping[str, str]) -> CostTable:
        """The table with drafters of a trace priced as drafters of its own: a what-if, said in the notes.

        prices   table's drafter by trace's drafter
        Raises   InputError when the table does not have such a drafter
        """
        for drafter, priced_as in prices.items():
            if priced_as not in self._phases.draft:
                known = _listed(self.drafters)
                raise InputError(f"{self._edge.where} cannot price {drafter} as {priced_as}: it has {known}")
        return CostTable(self.meta, self.cells, self._phases, self._prices | dict(prices), self._edge.extrapolate)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.meta.name

    @property
    def ranges(self) -> Ranges:
        """Where the table may be asked without extrapolating."""
        assert self.meta.ranges is not None
        return self.meta.ranges

    @property
    def drafters(self) -> tuple[str, ...]:
        """Drafters with measured draft costs, sorted."""
        return tuple(sorted(self._phases.draft))

    @property
    def prices(self) -> dict[str, str]:
        """Drafters of a trace priced as drafters of this table."""
        return dict(self._prices)

    @property
    def extrapolates(self) -> bool:
        """Whether questions outside the ranges are answered."""
        return self._edge.extrapolate

    @property
    def notes(self) -> list[str]:
        """What answers so far rest on beyond measured cells, in the order first said."""
        return list(self._edge.notes)

    def step_cost(self, drafter: DrafterSpec | None, batch: int, depth: int, context: float) -> StepCost:
        """What a step takes at every budget. Cached; the array is read-only.

        drafter  None: a plain step
        batch    running requests, B; 0 costs nothing
        depth    drafts a request, D; 0: a plain step
        context  mean sequence length, tokens
        returns  [B * D + 1] float64 seconds, drafting and host work included, switching and prefill not
        Raises   InputError outside the measured range, or for a drafter without a price
        """
        return self._entry(drafter if depth else None, batch, depth, math.ceil(context / CONTEXT_GRID)).cost

    def phases(
        self, drafter: DrafterSpec | None, batch: int, depth: int, num_drafts_verified: int, context: float
    ) -> StepSeconds:
        """The same seconds by phase; their total is `step_cost`'s in bits.

        num_drafts_verified  K, over all requests, in [0, B * D]
        """
        entry = self._entry(drafter if depth else None, batch, depth, math.ceil(context / CONTEXT_GRID))
        known = entry.by_budget.get(num_drafts_verified)
        if known is not None:
            return known
        if not 0 <= num_drafts_verified < len(entry.verify):
            raise ValueError(f"{num_drafts_verified} drafts verified of {len(entry.verify) - 1}")
        seconds = StepSeconds(entry.draft, entry.plan, float(entry.verify[num_drafts_verified]), entry.host)
        entry.by_budget[num_drafts_verified] = seconds
        return seconds

    def tokens_paid(self, batch: int, tokens: int) -> int:
        """Tokens a step pays for: the capture size it is padded to, or itself where steps run eagerly."""
        return bucket_paid(tokens, self.meta.capture_sizes)

    def prefill_seconds(self, tokens: int, context: float, alone: bool = False) -> float:
        """Extra seconds of prompt tokens in a step.

        tokens   prompt tokens
        context  tokens before them, mean
        alone    whether no request decodes in the step: then the pass itself, a plain step at the smallest
                 measured batch, is paid too
        Raises   InputError outside the range of contexts, or when the table has no prefill cells
        """
        if tokens == 0:
            return 0.0
        if self._phases.prefill is None:
            raise InputError(f"{self._edge.where} has no prefill cells, so prompts cannot be priced")
        cell = self._context_cell(context)
        seconds = float(self._phases.prefill.at(cell, self._edge, lambda curve: curve.at(tokens, self._edge)))
        return seconds + self.phases(None, self.ranges.batch[0], 0, 0, context).total if alone else seconds

    def switch_seconds(self, drafter: DrafterSpec, missed_tokens: int) -> float:
        """Seconds an idle drafter takes to catch up its cache.

        missed_tokens  tokens committed since it last drafted, over all running requests
        Raises         InputError for a drafter without a price
        """
        if missed_tokens == 0 or drafter.kind in NO_CACHE_OF_ITS_OWN:
            return 0.0
        name = self._prices.get(drafter.name, drafter.name)
        if name in self._phases.switch:
            return self._phases.switch[name].at(missed_tokens, self._edge)
        if drafter.target_fraction is None:
            raise self._unpriced(drafter, "switch")
        self._edge.note(f"switching to {drafter.name} is derived from its hint as a share of the target's prefill")
        return drafter.target_fraction * self.prefill_seconds(missed_tokens, 0.0)

    @property
    def charges_changes(self) -> bool:
        """Whether steps whose requests change take longer than others: there are cells that say so."""
        return any(cell.phase in CHANGES for cell in self.cells)

    def late_seconds(self, batch: int, drafting: float | None = None) -> float:
        """Seconds that a step takes longer when nothing of it was launched while the host was at the one in front.

        batch     running requests; outside the measured range, the nearest measured
        drafting  seconds that it drafts (None: it is a plain step). Short drafting hides less of the host's work when
                  it is launched ahead, so that there is less to lose
        """
        if drafting is None:
            return self._phases.late.nearest(batch)
        return max(0.0, self._phases.late_draft.nearest(batch) - self._exposed(batch, drafting))

    def join_seconds(self, batch: int, requests: int) -> float:
        """Seconds that requests which join add to steps beyond their prompts: admission, first token, and end.

        batch     running requests; outside the measured range, the nearest measured
        requests  how many join in the step
        """
        return self._phases.join.at(batch, requests) if requests else 0.0

    def gain_of_launching_ahead(self, batch: int) -> float | None:
        """What launching a plain step's pass ahead gains, as a share of the pass (None: not measured).

        batch  running requests; outside the measured range, the nearest measured
        """
        return self._gain(min(max(batch, self.ranges.batch[0]), self.ranges.batch[1]))

    def _gain_of_launching_ahead(self, batch: int) -> float | None:
        if not any(cell.phase == "late" for cell in self.cells):
            return None
        silent = Edge(self._edge.where, extrapolate=True)
        context = self._phases.verify.contexts[0]
        plain = self._phases.verify_seconds(batch, np.array([batch]), context, silent)
        return self.late_seconds(batch) / max(float(plain[0]), 1e-9)

    def _look_up(self, drafter: DrafterSpec | None, batch: int, depth: int, context_cell: int) -> _Entry:
        context = self._context_cell(context_cell * CONTEXT_GRID)
        if batch < 0 or depth < 0:
            raise ValueError(f"batch {batch} and depth {depth} must not be negative")
        if batch == 0:
            return _entry(0.0, 0.0, np.zeros(1), 0.0)
        verify = self._verify_to(batch, batch * (depth + 1) if drafter else batch, context)
        host = self._phases.host.at(batch, self._edge)
        if drafter is None:
            return _entry(0.0, 0.0, verify, host)
        draft = self._draft_seconds(drafter, batch, depth, context, float(verify[0]) + host)
        plan = self._phases.plan.at(batch, self._edge) + self._exposed(batch, draft)
        return _entry(draft, plan, verify, host)

    def _verify_to(self, batch: int, most: int, context: int) -> Floats:
        """[most - batch + 1] float64 seconds of verifying from one token a request up: part of what is known already
        where a deeper step was asked for before."""
        held = self._deepest(batch, context)
        if not held or len(held[0]) <= most - batch:
            tokens = np.arange(batch, most + 1, dtype=np.int64)
            held[:] = [self._phases.verify_seconds(batch, tokens, context, self._edge)]
        return held[0][: most - batch + 1]

    def _exposed(self, batch: int, drafting: float) -> float:
        """Host work that goes on beside drafting, as far as it takes longer."""
        return max(0.0, self._phases.hidden.nearest(batch) - drafting)

    def _draft_seconds(self, drafter: DrafterSpec, batch: int, depth: int, context: int, plain: float) -> float:
        name = self._prices.get(drafter.name, drafter.name)
        per_depth = drafter.passes == "per_depth"
        if name in self._phases.draft:
            return self._phases.draft_seconds(name, batch, depth, per_depth, context, self._edge)
        if drafter.target_fraction is None:
            raise self._unpriced(drafter, "draft")
        fraction = drafter.target_fraction
        self._edge.note(f"drafting by {drafter.name} is derived from hint: {fraction:g} of a plain step a pass")
        return (depth if per_depth else 1) * fraction * plain

    def _context_cell(self, context: float) -> int:
        """A context on the grid, held inside the range's top grid cell."""
        cell = math.ceil(context / CONTEXT_GRID) * CONTEXT_GRID
        top = self.ranges.context[1]
        if cell < 0:
            raise ValueError(f"context {context} must not be negative")
        if cell - CONTEXT_GRID >= top:
            self._edge.beyond("context", f"{context:g}", f"up to {top}")
            return cell
        return min(cell, top)

    def _unpriced(self, drafter: DrafterSpec, phase: str) -> InputError:
        return InputError(
            f"{self._edge.where} has no {phase} costs of drafter {drafter.name} and the trace gives no hint; "
            f"price it as one it has with --draft-cost {drafter.name}=NAME (NAME: {_listed(self.drafters)})"
        )

    def _note_what_holds_always(self) -> None:
        if self.meta.label == "example":
            self._edge.note("the cost table is a made-up example")
        if self._phases.flat:
            self._edge.note("the cost table is flat: verifying more costs nothing, so every draft is worth verifying")
        for drafter, priced_as in self._prices.items():
            self._edge.note(f"what-if: drafting by {drafter} is priced as {priced_as}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (CostTable, (self.meta, self.cells, self._phases, self._prices, self._edge.extrapolate))


def _entry(draft: float, plan: float, verify: Floats, host: float) -> _Entry:
    seconds = np.ascontiguousarray(draft + plan + verify + host)  # StepSeconds.total's order: equal in bits
    envelope = lower_envelope(seconds)
    for array in (seconds, envelope):
        array.flags.writeable = False
    return _Entry(StepCost(seconds, envelope), draft, plan, verify, host, {})


def _ranges(meta: CostMeta, cells: tuple[Cell, ...]) -> Ranges:
    """The declared ranges, or the span of the verify cells."""
    verify = [cell for cell in cells if cell.phase == "verify"]
    batches = [cell.batch for cell in verify]
    tokens = [cell.tokens or 0 for cell in verify]
    contexts = {cell.context for cell in verify}
    span = Ranges(batch=(min(batches), max(batches)), tokens=(min(tokens), max(tokens)), context=(0, max(contexts)))
    if meta.ranges is None:
        return span
    where = f"cost table {meta.name}: ranges"
    for axis in ("batch", "tokens"):
        if getattr(meta.ranges, axis) != getattr(span, axis):
            raise InputError(
                f"{where}: {axis} is {getattr(meta.ranges, axis)}, but the cells span {getattr(span, axis)}"
            )
    low, high = meta.ranges.context
    if low != 0 or high < max(contexts) or (high > max(contexts) and len(contexts) > 1):
        raise InputError(f"{where}: context is {(low, high)}, but the cells reach {max(contexts)}")
    return meta.ranges


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
