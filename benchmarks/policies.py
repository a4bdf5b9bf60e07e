"""How long a controller thinks: `plan` of every budget policy, `choose` and `observe` of every drafter policy.

32 requests, 15 drafts, float64 on numpy, three drafters. The best of many repeats, since others may use the machine.
A ratio to the machine's own sort of the same scores makes numbers of different machines comparable.

    python benchmarks/policies.py

The last line printed is one JSON object. Targets: `plan` of D-cut under 60 us, `choose` and `observe` of UCB1
together under 15 us.
"""

from __future__ import annotations

import json
import platform
import sys
import timeit
from collections.abc import Callable

import numpy as np

from specsim.core import Counterfactual, Draft, DrafterSpec, Outcome, StepContext, StepCost, StepSeconds
from specsim.cost.envelope import lower_envelope
from specsim.policies.build import ARMS, BUDGETS, build_controller

BATCH, DEPTH = 32, 15
NEEDED = {"batch_schedule": ":schedule=1:7/17:3", "slo_dcut": ":tpot_seconds=0.02"}
"""Options without a default."""

DRAFTERS = [
    DrafterSpec(name, "synthetic", "point_mass", "parallel", ("drawn_prob", "max_prob"), DEPTH) for name in "abc"
]


def microseconds(call: Callable[[], object], number: int = 20, repeats: int = 1000) -> float:
    """The fastest of many short timings: somewhere among them nobody else used the core."""
    return min(timeit.repeat(call, number=number, repeat=repeats)) / number * 1e6


def step() -> tuple[Draft, StepCost]:
    """One step's drafts and costs."""
    rng = np.random.default_rng(0)
    confidence = rng.beta(4, 1.2, (BATCH, DEPTH))
    scores = {"drawn_prob": confidence, "max_prob": confidence}
    acceptable, age = rng.integers(0, DEPTH + 1, BATCH), np.full(BATCH, 5)
    past = {"slots": np.arange(BATCH), "ages": age, "num_decoded": 3 * age, "decode_seconds": 0.01 * age}
    draft = Draft(DRAFTERS[0], np.full(BATCH, DEPTH), scores, acceptable, **past)
    seconds = 0.01 + 4e-5 * np.arange(BATCH * DEPTH + 1)
    return draft, StepCost(seconds, lower_envelope(seconds))


def slow_dcut(draft: Draft, cost: StepCost) -> list[int]:
    """D-cut by sorting Python tuples: what the fast plan must equal before it may be timed."""
    confidence = draft.scores["drawn_prob"]
    ranked, lengths = [], [0] * BATCH
    for request in range(BATCH):
        survival = 1.0
        for position in range(DEPTH):
            survival *= float(confidence[request, position])
            ranked.append((-survival, request, position))
    ranked.sort()
    budgets = [len(ranked) * quarter // 4 for quarter in (1, 2, 3, 4)]
    fixed = [sum(round(-score * 2**30) for score, _, _ in ranked[:budget]) for budget in budgets]
    utility = [value / float(cost.seconds[budget]) for value, budget in zip(fixed, budgets, strict=True)]
    for _, request, _ in ranked[: budgets[utility.index(max(utility))]]:
        lengths[request] += 1
    return lengths


def main() -> None:
    """Check, then measure and print."""
    draft, cost = step()
    if build_controller("dcut@a", DRAFTERS).plan(draft, cost).num_verify.tolist() != slow_dcut(draft, cost):
        sys.exit("the plan is wrong: nothing is measured")
    scores = np.ascontiguousarray(-draft.scores["drawn_prob"].ravel())
    sort = microseconds(lambda: np.sort(scores))
    plans, learning = {}, {}
    budgets = [f"{name}{NEEDED.get(name, '')}" for name in BUDGETS]
    for spec in (*budgets, "dcut:ratios=all", "dcut:count=code,numerator=bonus"):
        controller = build_controller(f"{spec}@a", DRAFTERS)
        plans[spec] = microseconds(lambda controller=controller: controller.plan(draft, cost))
    context = StepContext(0, 0.0, BATCH, 0, 100.0, np.random.default_rng(0))
    verified = np.full(BATCH, 8)
    accepted = np.minimum(verified, draft.num_acceptable)
    for arms in (*ARMS, "ucb1:reward=throughput"):
        controller = build_controller(f"dcut@{arms}", DRAFTERS)

        told = Counterfactual(*[np.tile(accepted, (3, 1))] * 2) if controller.full_information else None

        def learn(controller=controller, told=told) -> None:
            order = controller.choose(context)
            seconds = StepSeconds(draft=1e-3, verify=1e-2)
            controller.observe(Outcome(order, draft, verified, accepted, accepted + 1, seconds, counterfactual=told))

        learning[arms] = microseconds(learn)
    for title, rows in (("plan", plans), ("choose + observe", learning)):
        print(f"{title}, us (and in sorts of {BATCH * DEPTH} scores)")
        for name, value in rows.items():
            print(f"  {name:34} {value:7.1f} {value / sort:7.1f}")
    result = {
        "benchmark": "policies",
        "batch": BATCH,
        "depth": DEPTH,
        "sort_us": round(sort, 2),
        "plan_us": {name: round(value, 1) for name, value in plans.items()},
        "choose_observe_us": {name: round(value, 1) for name, value in learning.items()},
        "dcut_plan_over_target": round(plans["dcut"] / 60.0, 3),
        "ucb1_over_target": round(learning["ucb1"] / 15.0, 3),
        "dcut_plan_in_sorts": round(plans["dcut"] / sort, 1),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
