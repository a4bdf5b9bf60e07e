"""Cost tables and drafters that the tests of this folder ask."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from specsim.core import DrafterSpec
from specsim.cost import Cell, CostTable
from specsim.cost.examples import example_meta

SECONDS = st.floats(1e-6, 10.0, allow_nan=False)


def drafter(name: str = "block", **more) -> DrafterSpec:
    """A drafter with the fields that a cost depends on."""
    fields = {"kind": "block", "passes": "per_block", "max_depth": 64} | more
    return DrafterSpec(name=name, law="point_mass", structure="parallel", scores=("max_prob",), **fields)


def table(cells: Sequence[Cell], capture_sizes: Sequence[int] = (), extrapolate: bool = False, **meta) -> CostTable:
    """A table of these cells."""
    manifest = example_meta("example", capture_sizes).model_copy(update=meta)
    return CostTable.from_cells(manifest, cells, extrapolate)


def verify(seconds: dict[tuple[int, int], float], context: int = 0) -> list[Cell]:
    """Verify cells from seconds by (batch, tokens)."""
    return [Cell("verify", value, batch, tokens=tokens, context=context) for (batch, tokens), value in seconds.items()]


def draft(seconds: dict[tuple[int, int], float], name: str = "block", context: int = 0) -> list[Cell]:
    """Draft cells from seconds by (batch, depth)."""
    return [
        Cell("draft", value, batch, depth=depth, drafter=name, context=context)
        for (batch, depth), value in seconds.items()
    ]


@st.composite
def eager_tables(draw, rising: bool = False) -> CostTable:
    """Tables of an eager engine: several batches and contexts, a token grid of its own for each batch."""
    cells: list[Cell] = []
    contexts = draw(st.lists(st.integers(0, 40), min_size=1, max_size=3, unique=True))
    grids = {
        batch: sorted({batch, *draw(st.lists(st.integers(batch, 16 * batch), max_size=4))})
        for batch in draw(st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True))
    }
    for context in contexts:
        for batch, grid in grids.items():
            seconds = draw(st.lists(SECONDS, min_size=len(grid), max_size=len(grid)))
            ordered = sorted(seconds) if rising else seconds
            cells += verify(dict(zip([(batch, t) for t in grid], ordered, strict=True)), context * 64)
    return table(cells)


@st.composite
def captured_tables(draw, rising: bool = False) -> CostTable:
    """Tables of an engine with captured graphs, measured at every capture size that a batch fills, and above."""
    sizes = sorted(draw(st.lists(st.integers(2, 200), min_size=1, max_size=6, unique=True)))
    batches = draw(st.lists(st.integers(1, sizes[-1]), min_size=1, max_size=3, unique=True))
    cells: list[Cell] = []
    for batch in batches:
        counts = [size for size in sizes if size >= batch] + [sizes[-1] + 8, 16 * sizes[-1]]
        seconds = draw(st.lists(SECONDS, min_size=len(counts), max_size=len(counts)))
        ordered = sorted(seconds) if rising else seconds
        cells += verify(dict(zip([(batch, t) for t in counts], ordered, strict=True)))
    return table(cells, sizes)
