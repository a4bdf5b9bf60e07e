"""Small made-up cost tables for tests and tutorials. They say so in their label and notes."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence

from specsim.cost.cells import Cell
from specsim.cost.meta import CostMeta
from specsim.cost.table import CostTable

CONTEXTS = (0, 32768)
PREFILL_TOKENS = 8192


def example_meta(name: str, capture_sizes: Sequence[int] = ()) -> CostMeta:
    """A manifest that says the table is made up."""
    nothing = dict.fromkeys(("engine", "hardware", "dtype", "model"), "none")
    terms = {"source": "made up", "licence": "Apache-2.0", "date": datetime.date(2026, 1, 1)}
    return CostMeta.model_validate(
        {"name": name, "label": "example", "capture_sizes": tuple(capture_sizes)} | nothing | terms
    )


def linear_table(
    fixed: float,
    per_token: float,
    batches: Sequence[int] = (1, 256),
    drafters: Mapping[str, float] | None = None,
    max_depth: int = 15,
) -> CostTable:
    """An eager engine whose step costs `fixed + per_token * tokens` seconds at every context.

    fixed      seconds of a step that verifies nothing
    per_token  seconds of each verified or prefilled token
    batches    measured batches; those between cost the same
    drafters   seconds of drafting, whatever batch and depth, by drafter
    max_depth  deepest draft with a price
    """
    cells = _everywhere(
        Cell("verify", fixed + per_token * tokens, batch, tokens=tokens)
        for batch in sorted(set(batches))
        for tokens in sorted({batch, batch * (max_depth + 1)})
    )
    return _table("example-linear", cells, (), batches, drafters, max_depth, per_token)


def staircase_table(
    heights: Mapping[int, float],
    batches: Sequence[int],
    drafters: Mapping[str, float] | None = None,
    max_depth: int = 15,
) -> CostTable:
    """An engine with captured graphs: a step costs the height of its bucket at every batch and context.

    heights    seconds by capture size; they also bound the tokens of a step
    batches    measured batches; those between cost the same
    drafters   seconds of drafting, whatever batch and depth, by drafter
    max_depth  deepest draft with a price
    """
    cells = _everywhere(
        Cell("verify", seconds, batch, tokens=size)
        for batch in sorted(set(batches))
        for size, seconds in heights.items()
        if size >= batch
    )
    per_token = max(heights.values()) / max(heights)
    return _table("example-staircase", cells, tuple(sorted(heights)), batches, drafters, max_depth, per_token)


def flat_table(
    seconds: float, batches: Sequence[int] = (1, 256), drafters: Mapping[str, float] | None = None, max_depth: int = 15
) -> CostTable:
    """An eager engine whose step costs the same whatever it verifies."""
    return linear_table(seconds, 0.0, batches, drafters, max_depth)


def _everywhere(cells: Iterable[Cell]) -> list[Cell]:
    """The same cells at every context."""
    return [
        Cell(cell.phase, cell.seconds, cell.batch, cell.tokens, cell.depth, context, cell.drafter)
        for cell in cells
        for context in CONTEXTS
    ]


def _table(
    name: str,
    verify: list[Cell],
    capture_sizes: tuple[int, ...],
    batches: Sequence[int],
    drafters: Mapping[str, float] | None,
    max_depth: int,
    prefill_per_token: float,
) -> CostTable:
    drafts = _everywhere(
        Cell("draft", seconds, batch, depth=depth, drafter=drafter)
        for drafter, seconds in (drafters or {}).items()
        for batch in sorted(set(batches))
        for depth in sorted({1, max_depth})
    )
    switch = [
        Cell("switch", seconds, tokens=PREFILL_TOKENS, drafter=name) for name, seconds in (drafters or {}).items()
    ]
    prefill = _everywhere([Cell("prefill", prefill_per_token * PREFILL_TOKENS, tokens=PREFILL_TOKENS)])
    return CostTable.from_cells(example_meta(name, capture_sizes), [*verify, *drafts, *prefill, *switch])
