"""The preset study: what control is worth on a recorded small model, and on published numbers of a large one."""

from __future__ import annotations

from typing import Any

from specsim.config import StudyConfig, build_study

TITLE = "How should speculative decoding be controlled, and what is it worth?"

RECORDED = "smollm2-drafters"
CPU = "cpu-smollm2-drafters"
H20 = "h20-qwen3-8b"
PUBLISHED = "synthetic:h20-dflash"

AS_PUBLISHED = {"block-general": "dflash"}
"""The H20 table knows one drafter, a block of 15 drafts: the recorded block drafter is priced as that one."""

SEEDS = 3


def _named(label: str, budget: str, drafter: str | None = None) -> dict[str, Any]:
    """A policy under a short name, so that the table fits a terminal."""
    return {"label": label, "budget": budget} | ({} if drafter is None else {"drafter": drafter})


ANY_BUDGET = "ratios=all,numerator=bonus"
OWN_DEPTH = f"dcut:depth=goodput,{ANY_BUDGET}"
BLOCK, HEAD = "block-general", "eagle-general"

ONE_DRAFTER = [
    _named("depth 15", "fixed_depth:depth=15"),
    _named("depth 7", "fixed_depth:depth=7"),
    _named("depth 3", "fixed_depth:depth=3"),
    _named("D-cut", "dcut"),
    _named("D-cut, any budget", f"dcut:{ANY_BUDGET}"),
    _named("D-cut, own depth", OWN_DEPTH),
]
"""Own depth: the draft's depth, too, is chosen by the tokens per second it brought lately; 0 is plain decoding."""

SEVERAL_DRAFTERS = [
    *(_named(f"depth {depth} @block", f"fixed_depth:depth={depth}", BLOCK) for depth in (15, 7, 3)),
    _named("depth 3 @eagle", "fixed_depth:depth=3", HEAD),
    _named("depth 3 @ngram", "fixed_depth:depth=3", "ngram"),
    _named("D-cut @block", "dcut", BLOCK),
    _named("D-cut, own depth @block", OWN_DEPTH, BLOCK),
    _named("D-cut, own depth @eagle", OWN_DEPTH, HEAD),
    _named("D-cut, own depth @ngram", OWN_DEPTH, "ngram"),
    _named("depth 3 @UCB1 accepted", "fixed_depth:depth=3", "ucb1:reward=accepted_fraction"),
    _named("D-cut 3 @UCB1", f"dcut:depth=3,{ANY_BUDGET}", "ucb1:reward=throughput,c=0.2"),
    _named("D-cut, own depth @UCB1", OWN_DEPTH, "ucb1:reward=throughput,c=0.2"),
    _named("D-cut, own depth @Thompson", OWN_DEPTH, "thompson_gaussian:sigma=0.2"),
]
"""Single drafters, then bandits that choose among all six: prompt lookup, a block drafter, and four EAGLE heads."""


def demo_studies() -> list[StudyConfig]:
    """The parts of the demo: small enough that two cores need less than 20 s for all of them."""
    shared = {"title": TITLE, "seeds": SEEDS, "requests_per_slot": 2}
    recorded = {**shared, "trace": RECORDED, "policies": SEVERAL_DRAFTERS}
    h20 = {"path": H20, "draft_costs": AS_PUBLISHED}
    published = {**shared, "trace": PUBLISHED, "policies": ONE_DRAFTER}
    return [
        build_study({**recorded, "tables": [CPU], "batches": [1, 4, 8], "extrapolate": True}, "demo"),
        build_study({**recorded, "tables": [h20], "batches": [4, 16, 64]}, "demo"),
        build_study({**published, "tables": [H20], "batches": [4, 8, 16, 32, 64]}, "demo"),
    ]
