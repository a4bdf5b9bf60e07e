"""Builds the cost table h20-qwen3-8b from the numbers that the D-cut authors published.

    python traces/costs/build_h20.py [FOLDER]

Published: the end-to-end seconds of a step (draft and verify together) at four budgets, and the token throughput of
plain decoding. Not published: how a step divides into draft and verify. The rule used here, and said in the table:

- a plain step takes batch / throughput seconds;
- the line through a batch's two smallest budgets, extended back to one token a request, is a step that drafts and
  verifies no draft; what it takes beyond a plain step is drafting;
- verifying is the rest, so that the phases sum to the published step.
"""

from __future__ import annotations

import datetime
import sys
from itertools import pairwise
from pathlib import Path

from specsim.cost import Cell, CostMeta, CostTable, Ranges

BLOCK = 16
"""Tokens a request at ratio 1: 15 drafts and one anchor."""

RATIOS = (0.25, 0.5, 0.75, 1.0)

STEP_MS = {
    4: (8.2, 8.7, 9.7, 10.9),
    8: (10.6, 12.8, 16.3, 19.6),
    16: (16.0, 22.7, 29.8, 35.8),
    32: (29.8, 43.1, 56.6, 70.1),
    64: (55.2, 82.2, 107.9, 133.9),
}
"""End-to-end milliseconds of a step by batch, at each ratio of batch * BLOCK tokens."""

PLAIN_TOKENS_PER_SECOND = {4: 533.0, 8: 1017.9, 16: 1784.3, 32: 2663.1, 64: 3446.0}
"""Token throughput of plain decoding by batch."""

PROMPT_TOKENS = 8192
"""Reach of the prefill and switch lines. They are straight, so it prices nothing."""

DRAFTER = "dflash"

META = CostMeta(
    name="h20-qwen3-8b",
    label="published",
    engine="not stated",
    hardware="1 x NVIDIA H20",
    dtype="not stated",
    model="Qwen3-8B",
    date=datetime.date(2026, 7, 1),
    source="D-cut authors' page (Tencent AngelSlim documentation, dcut.html); paper arXiv 2607.14647",
    licence="Apache-2.0 (the source's repository)",
    method=(
        "Steps as published, mean of GSM8K, Math500, HumanEval, MBPP and MT-Bench at temperature 0, one GPU. "
        "Plain step = batch / throughput. Draft = line through the two smallest budgets at one token a request, "
        "less the plain step. Verify = step - draft. Prefill = largest published marginal cost of a token. "
        "Switch = draft seconds a token at batch 64."
    ),
    ranges=Ranges(batch=(4, 64), tokens=(4, 1024), context=(0, 4096)),
    remarks=(
        "The division of a step into draft and verify is derived, not published; their sum is published.",
        "Context lengths were not published: a step costs the same at every context up to 4096 tokens, "
        "which is our reading of those data sets.",
        "Drafting was published for blocks of 15 drafts only; a shorter block is charged the same.",
        "The date is the month of the paper.",
    ),
)


def cells() -> list[Cell]:
    """Every cell of the table."""
    found: list[Cell] = []
    for batch, steps_ms in STEP_MS.items():
        tokens = [round(batch * BLOCK * ratio) for ratio in RATIOS]
        steps = [milliseconds / 1e3 for milliseconds in steps_ms]
        plain = batch / PLAIN_TOKENS_PER_SECOND[batch]
        draft = draft_seconds(batch, tokens, steps, plain)
        found.append(Cell("draft", draft, batch, depth=BLOCK - 1, drafter=DRAFTER, provenance="derived"))
        found.append(Cell("verify", plain, batch, tokens=batch, provenance="published"))
        found += [
            Cell("verify", step - draft, batch, tokens=count, provenance="derived")
            for count, step in zip(tokens, steps, strict=True)
        ]
    prefill = PROMPT_TOKENS * marginal_seconds()
    largest = max(STEP_MS)
    drafting = next(cell.seconds for cell in found if cell.phase == "draft" and cell.batch == largest)
    switch = PROMPT_TOKENS * drafting / (largest * BLOCK)
    found.append(Cell("prefill", prefill, tokens=PROMPT_TOKENS, provenance="derived"))
    found.append(Cell("switch", switch, tokens=PROMPT_TOKENS, drafter=DRAFTER, provenance="derived"))
    return found


def draft_seconds(batch: int, tokens: list[int], steps: list[float], plain: float) -> float:
    """What a step takes beyond a plain one when nothing of the draft is verified."""
    slope = (steps[1] - steps[0]) / (tokens[1] - tokens[0])
    return steps[0] - slope * (tokens[0] - batch) - plain


def marginal_seconds() -> float:
    """The most that one more token was seen to cost, over all batches."""
    return max(
        (more - less) / 1e3 / (batch * BLOCK * (RATIOS[1] - RATIOS[0]))
        for batch, steps_ms in STEP_MS.items()
        for less, more in pairwise(steps_ms)
    )


def table() -> CostTable:
    """The table, in memory."""
    return CostTable.from_cells(META, cells())


if __name__ == "__main__":
    table().save(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / META.name)
