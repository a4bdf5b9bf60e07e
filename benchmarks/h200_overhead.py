"""The share of a step in which the GPU waits for the host, under acceptance replay.

Busy is what the profiler saw the device do; a step's seconds are taken in a run without the profiler, which slows
the host down. Both runs go on from the same requests. Between two kernels of one captured graph the device is idle for
about a microsecond, whatever the host does: how long is timed on graphs that are replayed one behind the other, and
does not count as waiting. About 100 s on one H200, and 130 s more without --table. With --quick, 15 steps: about 75 s.
The file is written again after every cell.

    python benchmarks/h200_overhead.py --out DIR [--table DIR/llama-3-8b-bfloat16] [--quick] [--tiny]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from replay_run import MINUTES, TINY, Device, Report, Scale, World, command
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

from specsim.cost import CostTable
from specsim.live.engine import Engine
from specsim.live.machine import versions
from specsim.live.profiler_cells import Bench, Grid
from specsim.live.profiler_timing import Stopwatch

POLICIES = ("autoregressive", "fixed_depth:depth=15", "dcut")

MOST_STEPS = 30

QUICK_STEPS = 15

QUICK_WARM_UP = 8

REPLAYS = 6
"""Graphs replayed one behind the other, in each of two runs."""


class Seen(NamedTuple):
    """What the profiler saw of a run.

    busy        seconds of the device's work
    in_graphs   kernels that a captured graph launched
    """

    busy: float
    in_graphs: int


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure each policy at a few batches."""
    report = Report.of(arguments)
    scale = TINY if arguments.tiny else Scale()
    if arguments.quick:
        scale = replace(scale, steps=min(scale.steps, 2 * QUICK_STEPS), warm_up=min(scale.warm_up, QUICK_WARM_UP))
    world = World(scale)
    table = CostTable.open(arguments.table) if arguments.table else world.measure_table()
    device = world.open(table.meta.capture_sizes)
    report.add(
        quick=arguments.quick, label=device.recording.label, hardware=table.meta.hardware, versions=versions(), cells=[]
    )
    for batch in (world.scale.batches[0], world.scale.batches[len(world.scale.batches) // 2], world.scale.batches[-1]):
        if report.left > 0:
            device.setup.runner.capture(batch, batch * (world.scale.depth + 1))
            gap = between_kernels(device, batch)
        for policy in POLICIES:
            if report.left < 0:
                report.append("left_out", {"policy": policy, "batch": batch})
                continue
            report.append("cells", {"policy": policy, "batch": batch} | waiting(device, table, policy, batch, gap))
            print(" ".join(f"{name}={value}" for name, value in report.found["cells"][-1].items()), flush=True)
    return report.found


def waiting(device: Device, table: CostTable, policy: str, batch: int, gap: float) -> dict[str, float]:
    """Milliseconds of a step, of the device's work in it, and of what it is idle between kernels of one graph.

    gap     seconds between two of them
    """
    engine, load = device.engine(policy, batch, table)
    while engine.scheduler.prefilling or len(engine.scheduler.decoding) < batch:
        engine.step()
    for _ in range(device.world.scale.warm_up):
        engine.step()
    steps = min(MOST_STEPS, device.world.scale.steps // 2)
    wall = take_steps(engine, steps)
    again = 0.0

    def run() -> None:
        nonlocal again
        again = take_steps(engine, steps)

    seen = profiled(run, engine.setup.device.type)
    load.stop()
    busy, between = seen.busy / steps, gap * seen.in_graphs / steps
    return {
        "step_ms": round(wall * 1e3, 3),
        "busy_ms": round(busy * 1e3, 3),
        "between_kernels_ms": round(between * 1e3, 3),
        "idle_share": round(1 - busy / wall, 4),
        "waiting_share": round(1 - (busy + between) / wall, 4),
        "profiled_step_ms": round(again * 1e3, 3),
    }


def between_kernels(device: Device, batch: int) -> float:
    """Seconds that the device is idle between two kernels of a captured graph; 0 on a CPU, which has none."""
    if device.setup.device.type != "cuda":
        return 0.0
    context = device.world.scale.contexts[0]
    bench = Bench(device.setup, [], Grid((batch,), (context,), batch, 1, device.setup.buckets))
    bench.place(batch)
    job = bench.verify(batch, context, batch)
    watch = Stopwatch(device.setup.device)
    for _ in range(REPLAYS):
        watch.sample(job.run)
    alone = float(np.median(watch.end_round()[1:]))

    def run() -> None:
        for _ in range(REPLAYS):
            job.run()
        torch.cuda.synchronize()

    seen = profiled(run, "cuda")
    bench.leave()
    return max(0.0, alone * REPLAYS - seen.busy) / max(seen.in_graphs, 1)


def take_steps(engine: Engine, count: int) -> float:
    """Seconds of a step, of so many."""
    wait(engine)
    started = time.perf_counter()
    for _ in range(count):
        engine.step(settled=False)
    wait(engine)
    return (time.perf_counter() - started) / count


def profiled(run: Callable[[], None], device: str) -> Seen:
    """What the device does while something runs.

    device  `cuda` or `cpu`
    """
    cuda = device == "cuda"
    activity = ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as seen:
        run()
    if cuda:
        work = [event for event in seen.events() if on_device(event)]
        launched = Counter(event.id for event in work)  # the kernels of one launch, as of a graph, share its number
        busy = sum(event.time_range.elapsed_us() for event in work) / 1e6
        in_graphs = sum(count for count in launched.values() if count > 1)
    else:
        busy, in_graphs = sum(event.self_cpu_time_total for event in seen.key_averages()) / 1e6, 0
    if not busy:
        raise RuntimeError("the profiler saw nothing on the device: it may lack permission to count there")
    return Seen(busy, in_graphs)


def on_device(event: Any) -> bool:
    """Whether an event is work of the device: annotations are drawn there, too, around what they name."""
    return event.device_type == DeviceType.CUDA and not event.is_user_annotation


def wait(engine: Engine) -> None:
    """Until the device has nothing to do."""
    if engine.setup.device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    table_option = {"default": None, "help": "folder of a cost table measured here (default: it is measured first)"}
    quick_option = {"action": "store_true", "help": "fewer steps"}
    sys.exit(command(main, __doc__ or "", table=table_option, quick=quick_option, minutes=MINUTES))
