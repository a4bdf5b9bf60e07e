"""A small made-up world on disk: a trace of two drafters, an eager cost table, and one with captured graphs."""

from __future__ import annotations

from pathlib import Path

from specsim.cost.examples import linear_table, staircase_table
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace


def build_world(folder: Path) -> Path:
    """Write `trace`, `linear` and `staircase` to a folder."""
    drafters = (
        SyntheticDrafter("strong", mean_acceptance_length=3.5, max_depth=7),
        SyntheticDrafter("weak", mean_acceptance_length=1.3, max_depth=7),
    )
    config = SyntheticConfig(
        "small", drafters, num_requests=24, domains={"chat": 0.5, "code": 0.5}, num_output_tokens=(40, 80), seed=3
    )
    SyntheticTrace(config).write(folder / "trace")
    prices = {"strong": 0.001, "weak": 0.001}
    linear_table(0.010, 0.0002, drafters=prices, max_depth=7).save(folder / "linear")
    heights = {size: 0.010 + 0.0004 * size for size in (8, 16, 32, 64, 128)}
    staircase_table(heights, batches=(1, 16), drafters=prices, max_depth=7).save(folder / "staircase")
    return folder
