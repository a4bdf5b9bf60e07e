"""A made-up world in which depth 3 is plainly best: three drafts are nearly always accepted, and no fourth is."""

from __future__ import annotations

from pathlib import Path

from specsim.cost.examples import linear_table
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace

BEST_DEPTH = 3


def build_tuning_world(folder: Path) -> Path:
    """Write `trace`, `table`, and `shallow`, a table that prices depth 5 at most, to a folder."""
    drafters = (
        SyntheticDrafter("three", rates=(0.98, 0.98, 0.98, 0.02), max_depth=15, hidden_variance=0.1),
        SyntheticDrafter("same", rates=(0.98, 0.98, 0.98, 0.02), max_depth=15, hidden_variance=0.1),
    )
    config = SyntheticConfig("planted", drafters, num_requests=13, num_output_tokens=(20, 40), seed=5)
    SyntheticTrace(config).write(folder / "trace")
    prices = {"three": 0.001, "same": 0.001}
    linear_table(0.010, 0.001, drafters=prices).save(folder / "table")
    linear_table(0.010, 0.001, drafters=prices, max_depth=5).save(folder / "shallow")
    return folder
