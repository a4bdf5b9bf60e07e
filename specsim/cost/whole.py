"""Steps at a cost table's measured points, alone and whole: their seconds, and how many plain steps that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specsim.cost.cells import Cell
from specsim.cost.table import CostTable
from specsim.cost.verify import bucket_paid


@dataclass(frozen=True, slots=True)
class Step:
    """One measured point of the verify phase, and what was added to it.

    batch       running requests
    tokens      verified, one anchor a request included
    seconds     duration
    ratio       that over a plain step's of the same batch (NaN: no plain step was measured)
    """

    batch: int
    tokens: int
    seconds: float
    ratio: float


def verify_steps(table: CostTable, context: int) -> list[Step]:
    """The target's pass alone, against its pass in a plain step.

    context     a measured one
    """
    return _against_plain(table, _verify(table, context), {}, {})


def whole_steps(table: CostTable, context: int, drafter: str | None) -> list[Step]:
    """Draft, plan, verify, host and what drafting does not hide, against verify and host of a plain step.

    context     a measured one; drafting is taken from the nearest context it was measured at
    drafter     who drafts, as deep as was measured (None: nobody drafts)
    """
    host = {cell.batch: cell.seconds for cell in table.cells if cell.phase == "host"}
    cells = _verify(table, context)
    if drafter is None:
        return _against_plain(table, cells, host, host)
    drafts = [cell for cell in table.cells if cell.phase == "draft" and cell.drafter == drafter]
    nearest = min((cell.context for cell in drafts), key=lambda measured: abs(measured - context))
    depth = deepest(table, drafter)
    drafting = {cell.batch: cell.seconds for cell in drafts if cell.context == nearest and cell.depth == depth}
    added = dict(drafting)
    for cell in table.cells:
        if cell.phase in ("plan", "host") and cell.batch in added:
            added[cell.batch] += cell.seconds
        if cell.phase == "hidden" and cell.batch in added:
            added[cell.batch] += max(cell.seconds - drafting[cell.batch], 0.0)
    return _against_plain(table, [cell for cell in cells if cell.batch in added], added, host)


def deepest(table: CostTable, drafter: str) -> int:
    """Most draft tokens a request that the drafter was measured with."""
    return max(cell.depth or 0 for cell in table.cells if cell.phase == "draft" and cell.drafter == drafter)


def by_request(steps: Sequence[Step]) -> bool:
    """Whether batches were measured at the same tokens a request rather than at the same tokens in all."""
    return len({step.tokens / step.batch for step in steps}) < len({step.tokens for step in steps})


def _verify(table: CostTable, context: int) -> list[Cell]:
    return [cell for cell in table.cells if cell.phase == "verify" and cell.context == context]


def _against_plain(
    table: CostTable, cells: Sequence[Cell], added: dict[int, float], host: dict[int, float]
) -> list[Step]:
    """Verify cells with `added` seconds by batch; a plain step pays for its bucket, and for `host`."""
    smallest = {batch: bucket_paid(batch, table.meta.capture_sizes) for batch in {cell.batch for cell in cells}}
    plain = {c.batch: c.seconds + host.get(c.batch, 0.0) for c in cells if c.tokens == smallest[c.batch]}
    steps = []
    for cell in cells:
        seconds = cell.seconds + added.get(cell.batch, 0.0)
        ratio = seconds / plain[cell.batch] if plain.get(cell.batch) else math.nan
        steps.append(Step(cell.batch, cell.tokens or 0, seconds, ratio))
    return steps
