"""The share of a step in which the GPU waits for the host, under acceptance replay.

Busy is what the profiler saw the device do; a step's seconds are taken in a run without the profiler, which slows
the host down. Both runs go on from the same requests. About 60 s on one H200, and 130 s more without --table.

    python benchmarks/h200_overhead.py --out DIR [--table DIR/llama-3-8b-bfloat16] [--tiny]
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import torch
from replay_run import TINY, Device, Scale, World, command
from torch.profiler import ProfilerActivity

from specsim.cost import CostTable
from specsim.live.engine import Engine

POLICIES = ("autoregressive", "fixed_depth:depth=15", "dcut")

MOST_STEPS = 30


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure each policy at a few batches."""
    world = World(TINY if arguments.tiny else Scale())
    table = CostTable.open(arguments.table) if arguments.table else world.measure_table()
    device = world.open(table.meta.capture_sizes)
    cells = []
    for batch in (world.scale.batches[0], world.scale.batches[len(world.scale.batches) // 2], world.scale.batches[-1]):
        device.setup.runner.capture(batch, batch * (world.scale.depth + 1))
        for policy in POLICIES:
            cells.append({"policy": policy, "batch": batch} | waiting(device, table, policy, batch))
            print(" ".join(f"{name}={value}" for name, value in cells[-1].items()), flush=True)
    return {"label": device.recording.label, "hardware": table.meta.hardware, "cells": cells}


def waiting(device: Device, table: CostTable, policy: str, batch: int) -> dict[str, float]:
    """Seconds of a step, and of the device's work in it."""
    engine, load = device.engine(policy, batch, table)
    while engine.scheduler.prefilling or len(engine.scheduler.decoding) < batch:
        engine.step()
    for _ in range(device.world.scale.warm_up):
        engine.step()
    steps = min(MOST_STEPS, device.world.scale.steps // 2)
    wall = take_steps(engine, steps)
    busy, again = profiled(engine, steps)
    load.stop()
    return {
        "step_ms": round(wall * 1e3, 3),
        "busy_ms": round(busy * 1e3, 3),
        "waiting_share": round(1 - busy / wall, 4),
        "profiled_step_ms": round(again * 1e3, 3),
    }


def take_steps(engine: Engine, count: int) -> float:
    """Seconds of a step, of so many."""
    wait(engine)
    started = time.perf_counter()
    for _ in range(count):
        engine.step()
    wait(engine)
    return (time.perf_counter() - started) / count


def profiled(engine: Engine, count: int) -> tuple[float, float]:
    """Seconds of the device's work a step, and of a step, under the profiler."""
    cuda = engine.setup.device.type == "cuda"
    activity = ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as seen:
        took = take_steps(engine, count)
    name = "self_device_time_total" if cuda else "self_cpu_time_total"
    busy = sum(getattr(event, name) for event in seen.key_averages()) / 1e6 / count
    if not busy:
        raise RuntimeError("the profiler saw nothing on the device: it may lack permission to count there")
    return busy, took


def wait(engine: Engine) -> None:
    """Until the device has nothing to do."""
    if engine.setup.device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    table_option = {"default": None, "help": "folder of a cost table measured here (default: it is measured first)"}
    sys.exit(command(main, __doc__ or "", table=table_option))
