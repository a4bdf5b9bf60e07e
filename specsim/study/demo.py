"""The preset study: what control is worth on a recorded small model, and on published numbers of a large one."""

from __future__ import annotations

from typing import Any

from specsim.config import StudyConfig, build_study

TITLE = "How should speculative decoding be controlled, and what is it worth?"

RECORDED = "smollm2-cpu"
CPU = "cpu-smollm2"
H20 = "h20-qwen3-8b"
PUBLISHED = "synthetic:h20-dflash"

SEEDS = 3


def _named(label: str, budget: str, drafter: str | None = None) -> dict[str, Any]:
    """A policy under a short name, so that the table fits a terminal."""
    return {"label": label, "budget": budget} | ({} if drafter is None else {"drafter": drafter})


ONE_DRAFTER = [
    _named("depth 15", "fixed_depth:depth=15"),
    _named("depth 7", "fixed_depth:depth=7"),
    _named("depth 3", "fixed_depth:depth=3"),
    _named("D-cut", "dcut"),
    _named("D-cut, any budget", "dcut:ratios=all,numerator=bonus"),
]

SEVERAL_DRAFTERS = [
    *({**policy, "drafter": "ngram", "label": f"{policy['label']} @ngram"} for policy in ONE_DRAFTER),
    _named("D-cut 3 @ngram", "dcut:depth=3", "ngram"),
    _named("D-cut 3 @exit28", "dcut:depth=3", "exit28"),
    _named("D-cut 3 @UCB1 throughput", "dcut:depth=3", "ucb1:reward=throughput"),
    _named("D-cut 3 @UCB1 accepted", "dcut:depth=3", "ucb1:reward=accepted_fraction"),
    _named("D-cut 3 @Thompson", "dcut:depth=3", "thompson_gaussian"),
]
"""The bandits draft 3 tokens: an early exit pays a pass for each, and exploring it at 15 would drown the rest."""


def demo_studies() -> list[StudyConfig]:
    """The parts of the demo: small enough that two cores need less than 20 s for all of them."""
    shared = {"title": TITLE, "seeds": SEEDS, "requests_per_slot": 2}
    recorded = {**shared, "trace": RECORDED, "policies": SEVERAL_DRAFTERS}
    published = {**shared, "trace": PUBLISHED, "policies": ONE_DRAFTER}
    return [
        build_study({**recorded, "tables": [CPU], "batches": [1, 4, 16]}, "demo"),
        build_study({**recorded, "tables": [H20], "batches": [4, 16, 64]}, "demo"),
        build_study({**published, "tables": [H20], "batches": [4, 8, 16, 32, 64]}, "demo"),
    ]
