"""How fast the simulator replays: engine steps and output tokens a second, in one process.

32 running requests, 15 drafts, D-cut on exact replay of a synthetic trace whose mean acceptance length under
D-cut is at least 4. Each size runs in a process of its own, so that its peak memory is its own.

    python benchmarks/simulator.py                    # the sizes 1e5, 1e6, 1e7
    python benchmarks/simulator.py --tokens 1000000   # one size

The last line printed is one JSON object. Targets: 8,000 steps/s, 1,000,000 output tokens/s, time linear in the
number of tokens and memory flat.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time

import numpy as np

from specsim.cost.examples import linear_table
from specsim.policies.build import build_controller
from specsim.sim import ClosedLoop, EngineConfig, simulate
from specsim.trace.hardness import Spread
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace

CONCURRENCY = 32
DEPTH = 15
OUTPUT_TOKENS = 512


def measure(policy: str, num_tokens: int, repeats: int) -> dict[str, float]:
    """Replay `num_tokens` output tokens; the best of `repeats`, since others may use the machine."""
    drafter = SyntheticDrafter("block", mean_acceptance_length=7.0, max_depth=DEPTH)
    config = SyntheticConfig(
        "benchmark",
        (drafter,),
        num_requests=20_000,
        num_output_tokens=(OUTPUT_TOKENS, OUTPUT_TOKENS),
        spread=Spread(request=0.1, token=1.0),
        distinct_requests=96,
    )
    trace = SyntheticTrace(config)
    for index in range(96):  # generated before the clock starts: replay is what is measured
        trace.blocks(index, 0)
    cost = linear_table(0.010, 0.00004, drafters={"block": 0.002})
    seconds = []
    for _ in range(repeats):
        controller = build_controller(policy, trace.drafters)
        started = time.perf_counter()
        run = simulate(
            trace,
            cost,
            controller,
            EngineConfig(prefill="excluded"),
            ClosedLoop(CONCURRENCY, num_tokens // OUTPUT_TOKENS),
        )
        seconds.append(time.perf_counter() - started)
    best = min(seconds)
    return {
        "output_tokens": run.steady_tokens,
        "steps": run.totals.num_steps,
        "seconds": best,
        "steps_per_second": run.totals.num_steps / best,
        "tokens_per_second": run.steady_tokens / best,
        "microseconds_per_step": 1e6 * best / run.totals.num_steps,
        "mean_acceptance_length": run.totals.num_emitted / run.totals.request_steps,
        "verified_share": run.totals.num_verified / max(1, run.totals.num_drafted),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Measure each size in a process of its own and print a table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, help="measure one size in this process")
    parser.add_argument("--policy", default="dcut")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.tokens:
        print(json.dumps(measure(arguments.policy, arguments.tokens, arguments.repeats)))
        return
    results = []
    print(f"{'tokens':>10} {'steps/s':>9} {'tokens/s':>11} {'us/step':>8} {'length':>7} {'MB':>6}")
    for tokens in (10**5, 10**6, 10**7):
        repeats = arguments.repeats if tokens < 10**7 else 1
        command = [sys.executable, __file__, "--tokens", str(tokens), "--policy", arguments.policy]
        printed = subprocess.run([*command, "--repeats", str(repeats)], capture_output=True, text=True, check=True)
        result = json.loads(printed.stdout.splitlines()[-1])
        results.append(result)
        print(
            f"{result['output_tokens']:>10,} {result['steps_per_second']:>9,.0f} {result['tokens_per_second']:>11,.0f} "
            f"{result['microseconds_per_step']:>8.1f} {result['mean_acceptance_length']:>7.2f} "
            f"{result['peak_memory_mb']:>6.0f}"
        )
    machine = {"processor": platform.processor(), "python": platform.python_version(), "numpy": np.__version__}
    print(json.dumps({"benchmark": "simulator", "policy": arguments.policy, "machine": machine, "sizes": results}))


if __name__ == "__main__":
    main()
