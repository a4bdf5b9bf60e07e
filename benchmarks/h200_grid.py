"""Measure policies on a GPU under acceptance replay, and compare with what the simulator predicts from a cost table.

The target is the llama-3-8b shape with random weights; drafting takes a pass through its first 5 layers; acceptance is
the preset h20-dflash. Each policy runs at 1, 8, 32, 64 and 128 requests in a closed loop, 170 steps each. The simulator
takes the same requests in the same order under the same controller, so that both take the same steps; what is compared
is the time they take. Also: what verifying 15 drafts costs at 32 requests and 1,024 tokens of context, relative to
a plain step.

About 170 s on one H200 with --table, the folder of a table that h200_profile.py wrote there; without, 130 s more.
With --quick, 40 to 100 steps of fewer policies: about 90 s. The file is written again after every cell. Batches may be
measured apart, on several GPUs at once; `benchmarks/h200_merge.py` puts the files together.

    python benchmarks/h200_grid.py --out DIR [--table DIR/llama-3-8b-bfloat16] [--batches 1,8] [--quick] [--minutes 2]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Any

import numpy as np
from h200_merge import overall
from replay_run import (
    MINUTES,
    SEED,
    TINY,
    Device,
    Report,
    Scale,
    World,
    command,
    full_steps,
    integers,
    step_seconds,
)

from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.live.machine import versions
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
    "dcut:ratios=all,numerator=bonus,depth=goodput",
)

QUICK_POLICIES = (
    "autoregressive",
    "fixed_depth:depth=15",
    "dcut:ratios=all,numerator=bonus",
    "fixed_depth:depth=7",
    "dcut",
    "dcut:ratios=all,numerator=bonus,depth=goodput",
    "fixed_ratio:ratio=0.5",
)
"""The most wanted first: each is measured at every batch before the next one is."""

QUICK_STEPS, QUICK_WARM_UP = (40, 100), 10
"""Least and most steps of a quick run, which takes fewer the more requests a step has; and those before them."""

QUICK_REQUEST_STEPS = 1920
"""Requests times steps that a quick run has between the two."""

DECIDED = ("batch", "depth", "num_drafted", "num_verified", "num_emitted", "prefill_tokens", "plan_hash")
"""What must be equal for a simulated step to be the measured one."""

ROUNDS = 5

DEEP = {False: (32, 1024), True: (4, 64)}
"""Requests and context at which verifying all drafts is timed; the latter with --tiny."""


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure and predict every policy at every batch."""
    report = Report.of(arguments)
    scale = TINY if arguments.tiny else Scale()
    if arguments.quick:
        scale = replace(scale, warm_up=min(scale.warm_up, QUICK_WARM_UP))
    if arguments.batches:
        scale = replace(scale, batches=arguments.batches)
    world = World(scale)
    table = CostTable.open(arguments.table) if arguments.table else world.measure_table()
    table.save(arguments.out / f"grid-{table.name}")
    device = world.open(table.meta.capture_sizes)
    report.add(
        quick=arguments.quick,
        label=device.recording.label,
        draft_cost=scale.draft_cost,
        hardware=table.meta.hardware,
        table=table.name,
        versions=versions(),
        cells=[],
    )
    captured: set[int] = set()
    for policy in QUICK_POLICIES if arguments.quick else POLICIES:
        for batch in scale.batches:
            if report.left < 0:
                report.append("left_out", {"policy": policy, "batch": batch, "why": "no time left"})
                continue
            if batch not in captured:
                device.setup.runner.capture(batch, batch * (scale.depth + 1))
                captured.add(batch)
            try:
                steps = quick_steps(batch) if arguments.quick else scale.steps
                report.append("cells", cell(world, device, table, policy, batch, steps))
            except (InputError, RuntimeError) as error:  # a run that cannot be costs the others nothing
                report.append("left_out", {"policy": policy, "batch": batch, "why": str(error)})
                print(f"{policy} at batch {batch}: {error}", flush=True)
                continue
            report.add(**overall(report.found["cells"]))
            print(" ".join(f"{name}={value}" for name, value in report.found["cells"][-1].items()), flush=True)
    if report.left > 0 and DEEP[scale.shape == TINY.shape][0] in scale.batches:
        report.add(verifying_15_drafts=verifying_15(world, device, table))
    return report.found


def quick_steps(batch: int) -> int:
    """Counted steps of a quick run."""
    least, most = QUICK_STEPS
    return max(least, min(most, QUICK_REQUEST_STEPS // batch))


def cell(world: World, device: Device, table: CostTable, policy: str, batch: int, steps: int) -> dict[str, Any]:
    """One policy at one batch: measured and predicted output tokens a second, over the same steps."""
    scale = world.scale
    controller = build_controller(policy, world.trace.drafters, live=True)
    live = device.run(policy, batch, table, steps)
    requests = 2 * batch + int(live["num_emitted"].sum()) // scale.num_output_tokens[0]  # more than could have ended
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


def verifying_15(world: World, device: Device, table: CostTable) -> dict[str, Any]:
    """The pass of a step with all drafts over that of a plain step: in the table, and timed here, turn by turn."""
    depth = world.scale.depth
    batch, context = DEEP[world.scale.shape == TINY.shape]
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
    batches_option = {"type": integers, "default": None, "help": "requests of the runs (default: all)"}
    options = {"table": table_option, "quick": quick_option, "batches": batches_option, "minutes": MINUTES}
    sys.exit(command(main, __doc__ or "", **options))
