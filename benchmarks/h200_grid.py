"""Measure policies on a GPU under acceptance replay, and compare with what the simulator predicts from a cost table.

The target is the llama-3-8b shape with random weights; drafting takes a pass through its first 5 layers; acceptance is
the preset h20-dflash. Each policy runs at 1, 8, 32, 64 and 128 requests in a closed loop, 170 steps each. The simulator
takes the same requests in the same order under the same controller, so that both take the same steps; what is compared
is the time they take. Also: what verifying 15 drafts costs at 32 requests and 1,024 tokens of context, relative to
a plain step.

About 170 s on one H200 with --table, the folder of a table that h200_profile.py wrote there; without, 130 s more.
With --quick, 60 steps of five policies: about 90 s.

    python benchmarks/h200_grid.py --out DIR [--table DIR/llama-3-8b-bfloat16] [--quick] [--tiny]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
from replay_run import SEED, TINY, Device, Scale, World, command, full_steps, step_seconds

from specsim.cost import CostTable
from specsim.live.profiler_cells import Bench, Grid
from specsim.live.profiler_timing import Stopwatch
from specsim.policies.build import build_controller
from specsim.sim.simulate import simulate
from specsim.sim.workload import ClosedLoop

POLICIES = (
    "autoregressive",
    "fixed_depth:depth=15",
    "fixed_depth:depth=7",
    "fixed_ratio:ratio=0.25",
    "fixed_ratio:ratio=0.5",
    "fixed_ratio:ratio=0.75",
    "dcut",
    "dcut:ratios=all,numerator=bonus",
)

QUICK_POLICIES = ("autoregressive", "fixed_depth:depth=15", "fixed_depth:depth=7", "fixed_ratio:ratio=0.5", "dcut")

QUICK_STEPS = 60

DECIDED = ("batch", "depth", "num_drafted", "num_verified", "num_emitted", "prefill_tokens", "plan_hash")
"""What must be equal for a simulated step to be the measured one."""

ROUNDS = 5


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure and predict every policy at every batch."""
    scale = TINY if arguments.tiny else Scale()
    world = World(replace(scale, steps=min(scale.steps, QUICK_STEPS)) if arguments.quick else scale)
    policies = QUICK_POLICIES if arguments.quick else POLICIES
    table = CostTable.open(arguments.table) if arguments.table else world.measure_table()
    table.save(arguments.out / f"grid-{table.name}")
    device = world.open(table.meta.capture_sizes)
    relative = verifying_15(world, device, table)
    cells = []
    for batch in world.scale.batches:
        started = time.perf_counter()
        device.setup.runner.capture(batch, batch * (world.scale.depth + 1))
        for policy in policies:
            cells.append(cell(world, device, table, policy, batch))
            print(" ".join(f"{name}={value}" for name, value in cells[-1].items()), flush=True)
        print(f"batch {batch}: {time.perf_counter() - started:.0f} s", flush=True)
    errors = np.array([abs(found["error"]) for found in cells])
    return {
        "quick": arguments.quick,
        "label": device.recording.label,
        "draft_cost": world.scale.draft_cost,
        "hardware": table.meta.hardware,
        "mean_error": round(float(errors.mean()), 4),
        "max_error": round(float(errors.max()), 4),
        "speedups": speedups(cells),
        "verifying_15_drafts": relative,
        "cells": cells,
    }


def cell(world: World, device: Device, table: CostTable, policy: str, batch: int) -> dict[str, Any]:
    """One policy at one batch: measured and predicted output tokens a second, over the same steps."""
    scale = world.scale
    live = device.run(policy, batch, table)
    controller = build_controller(policy, world.trace.drafters, live=True)
    requests = 2 * batch + (len(live) * (scale.depth + 1) * batch) // scale.num_output_tokens[0]
    load = ClosedLoop(batch, requests)
    run = simulate(world.trace, table, controller, world.config(batch), load, seed=SEED, record_steps=True)
    assert run.steps is not None
    simulated = run.steps[: len(live)]
    same = np.logical_and.reduce([live[name] == simulated[name] for name in DECIDED])
    counted = full_steps(live, batch, scale.warm_up)
    measured, predicted = (throughput(rows, counted) for rows in (live, simulated))
    whole = throughput(live, np.ones(len(live), bool)), throughput(simulated, np.ones(len(live), bool))
    return {
        "policy": policy,
        "batch": batch,
        "steps": int(counted.sum()),
        "same_steps": round(float(same.mean()), 4),
        "measured": round(measured, 2),
        "predicted": round(predicted, 2),
        "error": round(predicted / measured - 1, 4),
        "error_with_prompts": round(whole[1] / whole[0] - 1, 4),
        "step_ms": round(float(step_seconds(live)[counted].mean()) * 1e3, 3),
        "predicted_step_ms": round(float(step_seconds(simulated)[counted].mean()) * 1e3, 3),
        "tokens_a_step": round(float(live["num_emitted"][counted].mean()) / batch, 3),
        "verified_a_request": round(float(live["num_verified"][counted].mean()) / batch, 3),
        "phases_ms": phases(live, counted),
        "predicted_phases_ms": phases(simulated, counted),
    }


def throughput(rows: np.ndarray, counted: np.ndarray) -> float:
    """Output tokens a second of these steps."""
    return float(rows["num_emitted"][counted].sum() / step_seconds(rows)[counted].sum())


def phases(rows: np.ndarray, counted: np.ndarray) -> dict[str, float]:
    """Mean milliseconds of each phase."""
    names = ("draft", "plan", "verify", "host")
    return {name: round(float(rows[f"{name}_seconds"][counted].mean()) * 1e3, 3) for name in names}


def speedups(cells: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Measured throughput over plain decoding's, by policy and batch."""
    plain = {found["batch"]: found["measured"] for found in cells if found["policy"] == "autoregressive"}
    found: dict[str, dict[str, float]] = {}
    for each in cells:
        found.setdefault(each["policy"], {})[str(each["batch"])] = round(each["measured"] / plain[each["batch"]], 3)
    return found


def verifying_15(world: World, device: Device, table: CostTable) -> dict[str, Any]:
    """The pass of a step with all drafts over that of a plain step: in the table, and timed here, turn by turn."""
    depth = world.scale.depth
    batch, context = (4, 64) if world.scale.shape == TINY.shape else (32, 1024)
    spec = device.drafter.spec
    plain = table.phases(None, batch, 0, 0, context)
    deep = table.phases(spec, batch, depth, batch * depth, context)
    grid = Grid((batch,), (context,), batch * (depth + 1), depth, device.setup.buckets)
    bench = Bench(device.setup, [], grid)
    bench.place(batch)
    jobs = [bench.verify(batch, context, tokens) for tokens in (batch, batch * (depth + 1))]
    watch = Stopwatch(device.setup.device)
    samples = []
    for _ in range(ROUNDS + 1):
        for job in jobs:
            watch.sample(job.run)
        samples.append(watch.end_round())
    bench.leave()
    one, full = np.median(samples[1:], axis=0)
    return {
        "batch": batch,
        "context": context,
        "drafts": depth,
        "table_pass_ratio": round(deep.verify / plain.verify, 3),
        "timed_pass_ratio": round(float(full / one), 3),
        "timed_plain_ms": round(float(one) * 1e3, 3),
        "timed_full_ms": round(float(full) * 1e3, 3),
        "table_step_ratio": round(deep.total / plain.total, 3),
    }


if __name__ == "__main__":
    table_option = {"default": None, "help": "folder of a cost table measured here (default: it is measured first)"}
    quick_option = {"action": "store_true", "help": "fewer policies and steps"}
    sys.exit(command(main, __doc__ or "", table=table_option, quick=quick_option))
