"""What choosing the draft depth before drafting is worth: fixed depths, goodput rules and D-cut beside each other.

The simulator replays a trace at the seconds of a cost table, a closed loop of each batch size, the same requests for
every policy; prompts cost nothing, catching up does. Cells are tokens/s over plain decoding's, the mean of the seeds.
The last two columns say what D-cut with `depth=goodput` brings against the best fixed depth of the row, and against
plain decoding in the seed where it is worst.

    python benchmarks/draft_depth.py [--trace smollm2-drafters] [--cost cpu-smollm2-drafters]
        [--drafters ngram,eagle-general,block-general] [--batches 1,4,8,16] [--seeds 3] [--requests 4] [--out FILE]
        [--policy POLICY ...] [--options alpha=.02,risk=.01] [--tiny]

`--trace h20-dflash` is the made-up trace of the h200 scripts (its drafter is `dflash`):

    python benchmarks/draft_depth.py --trace h20-dflash --cost h200-llama-3-8b --drafters dflash --batches 1,8,32,64,128

The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np

from specsim import metrics
from specsim.cost import CostTable
from specsim.policies.build import build_controller
from specsim.serving.engine_config import EngineConfig
from specsim.shipped import shipped_path
from specsim.sim.simulate import simulate
from specsim.sim.workload import ClosedLoop
from specsim.trace import Trace, TraceLike
from specsim.trace.presets import h20_dflash

PLAIN = "autoregressive"
BOTH = "dcut:ratios=all,numerator=bonus,depth=goodput"
DEPTHS = (1, 2, 3, 4, 7, 15)
POLICIES = (
    *(f"fixed_depth:depth={depth}" for depth in DEPTHS),
    "goodput_depth",
    "dcut",
    "dcut:ratios=all,numerator=bonus",
)


@dataclass(frozen=True)
class Study:
    """What is played.

    trace, cost  names or folders
    requests     finished requests that end a run, for each slot
    """

    trace: str
    cost: str
    requests: int


@cache
def materials(study: Study) -> tuple[TraceLike, CostTable]:
    """The trace and the cost table."""
    cost = CostTable.open(shipped_path("cost", study.cost), extrapolate=True)
    if study.trace == "h20-dflash":
        return h20_dflash(256, (512, 1024)), cost
    return Trace.open(shipped_path("trace", study.trace)), cost


def play(study: Study, cell: tuple[str, int, str, int]) -> float:
    """Tokens/s of a drafter, batch size, policy and seed."""
    drafter, batch, policy, seed = cell
    trace, cost = materials(study)
    controller = build_controller(policy if policy == PLAIN else f"{policy}@{drafter}", trace.drafters)
    engine = EngineConfig(max_num_seqs=batch, prefill="excluded")
    load = ClosedLoop(batch, max(8, study.requests * batch))
    return metrics.summarize(simulate(trace, cost, controller, engine, load, seed=seed)).token_throughput


def rows(study: Study, arguments: argparse.Namespace, policies: tuple[str, ...], own: str) -> list[dict[str, object]]:
    """One for each drafter and batch size."""
    seeds = range(arguments.seeds)
    keys = list(product(arguments.drafters.split(","), map(int, arguments.batches.split(","))))
    cells = [(*key, policy, seed) for key in keys for policy in (PLAIN, *policies) for seed in seeds]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        found = dict(zip(cells, pool.map(partial(play, study), cells), strict=True))
    table = []
    for key in keys:
        plain = np.array([found[(*key, PLAIN, seed)] for seed in seeds])
        over = {policy: np.array([found[(*key, policy, seed)] for seed in seeds]) / plain for policy in policies}
        mean = {policy: round(float(ratios.mean()), 3) for policy, ratios in over.items()}
        best = max(value for policy, value in mean.items() if policy.startswith("fixed_depth"))
        table.append(
            {"drafter": key[0], "batch": key[1], "plain_tokens_per_second": round(float(plain.mean()), 1)}
            | {"over_plain": mean, "over_best_fixed": round(mean[own] / best, 3)}
            | {"worst_seed_over_plain": round(float(over[own].min()), 3)}
        )
    return table


def markdown(table: list[dict[str, object]], policies: tuple[str, ...]) -> str:
    """The table as docs/policies.md shows it."""
    heads = [policy.replace("fixed_depth:depth=", "") for policy in policies]
    lines = [f"| drafter | batch | {' | '.join(heads)} | over best fixed | worst seed |"]
    lines.append("|---" * (len(policies) + 4) + "|")
    for row in table:
        values = [f"{value:.2f}" for value in row["over_plain"].values()]  # type: ignore[attr-defined]
        ends = f"{row['over_best_fixed']:.3f} | {row['worst_seed_over_plain']:.3f}"
        lines.append(f"| {row['drafter']} | {row['batch']} | {' | '.join(values)} | {ends} |")
    return "\n".join(lines)


def main() -> int:
    """Play, print the table, then the JSON."""
    parser = argparse.ArgumentParser(description="What choosing the draft depth is worth.")
    parser.add_argument("--trace", default="smollm2-drafters")
    parser.add_argument("--cost", default="cpu-smollm2-drafters")
    parser.add_argument("--drafters", default="ngram,eagle-general,eagle-math,block-general")
    parser.add_argument("--batches", default="1,4,8,16")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=4, help="finished requests a slot that end a run")
    parser.add_argument("--options", default="", help="more options of depth=goodput, as alpha=.05,risk=.02")
    parser.add_argument("--policy", action="append", help="instead of the policies beside it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=None, help="file to write the JSON to as well")
    parser.add_argument("--tiny", action="store_true", help="one batch size and seed, to try the script out")
    arguments = parser.parse_args()
    if arguments.tiny:
        arguments.batches, arguments.seeds, arguments.requests = arguments.batches.split(",")[0], 1, 1
    own = f"{BOTH},{arguments.options}" if arguments.options else BOTH
    policies = (*(arguments.policy or POLICIES), own)
    study = Study(arguments.trace, arguments.cost, arguments.requests)
    table = rows(study, arguments, policies, own)
    print(markdown(table, policies))
    result = {"command": " ".join(sys.argv), "policies": policies, "rows": table}
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
