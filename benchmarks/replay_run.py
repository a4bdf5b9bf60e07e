"""One acceptance-replay run on a device: what the h200 scripts share.

A model of random weights really runs, and a made-up trace says what is drafted and accepted. Drafting takes what a pass
through the target's first layers takes.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.live.acceptor import TargetAcceptor
from specsim.live.dummy import load_dummy
from specsim.live.engine import Engine, LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.machine import prepare
from specsim.live.models import LoadedModel
from specsim.live.profiler import ProfileOptions, profile
from specsim.live.replayed import ClosedLoad, Recording, ReplayedAcceptor, ReplayedDrafter
from specsim.policies.build import build_controller
from specsim.serving import EngineConfig
from specsim.sim.workload import request_order
from specsim.trace.presets import h20_dflash
from specsim.trace.synthetic import SyntheticTrace

TINY_SHAPE = str(Path(__file__).with_name("tiny-llama.json"))

SEED = 0


@dataclass(frozen=True)
class Scale:
    """How large a run is.

    shape               of the target, see `load_dummy`
    dtype, device       of the target
    batches             requests in the closed loop
    contexts            tokens before a step where the cost table is measured
    depth               most drafts a request
    num_prompt_tokens   least and most
    num_output_tokens   least and most
    steps               engine steps a run
    warm_up             steps before them that nobody counts
    draft_cost          what drafting takes, see `ReplayedDrafter`
    repeats             rounds behind the cost table
    time_budget         seconds after which the table's rounds end
    """

    shape: str = "llama-3-8b"
    dtype: str = "bfloat16"
    device: str = "cuda"
    batches: tuple[int, ...] = (1, 8, 32, 64, 128)
    contexts: tuple[int, ...] = (256, 512, 1024, 4096)
    depth: int = 15
    num_prompt_tokens: tuple[int, int] = (128, 512)
    num_output_tokens: tuple[int, int] = (512, 1024)
    steps: int = 150
    warm_up: int = 20
    draft_cost: str = "layers:5"
    repeats: int = 4
    time_budget: float = 60.0


TINY = Scale(
    shape=TINY_SHAPE,
    dtype="float32",
    device="cpu",
    batches=(1, 2, 4),
    contexts=(16, 64),
    num_prompt_tokens=(4, 16),
    num_output_tokens=(16, 48),
    steps=12,
    warm_up=2,
    draft_cost="layers:1",
    repeats=2,
    time_budget=5.0,
)
"""The same code on a CPU, in seconds; its numbers mean nothing."""


class World:
    """A target on its device, and the trace that is replayed on it.

    scale   how large
    """

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.target: LoadedModel = load_dummy(scale.shape, dtype=scale.dtype, device=scale.device)
        self.trace = trace_of(scale)
        self.longest = scale.num_prompt_tokens[1] + scale.num_output_tokens[1] + scale.depth + 1

    def config(self, batch: int) -> EngineConfig:
        """Limits of an engine of so many requests."""
        most = max(8192, 2 * batch * (self.scale.depth + 1))
        return EngineConfig(batch, most, block_size=16, max_model_len=self.longest)

    def measure_table(self) -> CostTable:
        """What steps take here, drafting included."""
        return measure_table(self.scale, self.target, self.trace)

    def open(self, buckets: tuple[int, ...]) -> Device:
        """The device side of the engines of all batches."""
        config = self.config(self.scale.batches[-1])
        setup = LiveSetup(self.target, config, self.scale.depth, EngineOptions(), buckets)
        recording = Recording(self.trace, setup)
        return Device(self, setup, recording, ReplayedDrafter(recording, 0, setup, self.scale.draft_cost))


@dataclass(frozen=True)
class Device:
    """A world's engines, one after the other."""

    world: World
    setup: LiveSetup
    recording: Recording
    drafter: ReplayedDrafter

    def engine(self, policy: str, batch: int, table: CostTable) -> tuple[Engine, ClosedLoad]:
        """An engine under a policy, and its closed loop of requests, started."""
        controller = build_controller(policy, (self.drafter.spec,), live=True)
        acceptor = ReplayedAcceptor(self.recording, TargetAcceptor(self.setup.ops))
        options = EngineOptions(seed=SEED)
        config = self.world.config(batch)
        engine = Engine(self.setup, [self.drafter], controller, table, config, options, acceptor)
        load = ClosedLoad(engine, self.recording, request_order(len(self.world.trace), SEED))
        load.start(batch)
        return engine, load

    def run(self, policy: str, batch: int, table: CostTable, steps: int) -> np.ndarray:
        """Take a run's steps, and those of the warm-up before; the records of both."""
        engine, load = self.engine(policy, batch, table)
        for _ in range(self.world.scale.warm_up + steps):
            engine.step(settled=False)
        engine.settle()
        assert engine.tally.steps is not None
        rows = engine.tally.steps.table()
        load.stop()
        return rows


def trace_of(scale: Scale) -> SyntheticTrace:
    """Acceptance of a block drafter as published for the H20, with this scale's lengths."""
    config = h20_dflash(256, scale.num_output_tokens).config
    return SyntheticTrace(replace(config, num_prompt_tokens=scale.num_prompt_tokens))


@dataclass
class Report:
    """What was found so far, in a file that is written again after every result: a run that is killed loses none.

    file      where
    deadline  instant, of time.perf_counter, after which nothing more is begun
    found     the result
    """

    file: Path
    deadline: float
    found: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Report:
        """The report of a script that was given `--minutes`."""
        file = arguments.out / f"{Path(sys.argv[0]).stem}.json"
        found = {"tiny": arguments.tiny, "date": datetime.date.today().isoformat()}
        return cls(file, time.perf_counter() + arguments.minutes * 60.0, found)

    def add(self, **more: Any) -> None:
        """Write down something more."""
        self.found |= more
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.found, indent=1) + "\n")
        part.replace(self.file)  # whoever kills this leaves the file before it, or this one

    def append(self, name: str, entry: Any) -> None:
        """Write down one more of a kind."""
        self.add(**{name: [*self.found.get(name, []), entry]})

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.deadline - time.perf_counter()


MINUTES: dict[str, Any] = {"type": float, "default": 60.0, "help": "after which nothing more is begun"}
"""The option that bounds a script's time."""


def integers(text: str) -> tuple[int, ...]:
    """Rising integers, separated by commas; an option's type.

    Raises  ValueError for anything else
    """
    values = tuple(int(word) for word in text.split(","))
    if not values or min(values) < 1 or list(values) != sorted(set(values)):
        raise ValueError(f"{text!r}: must be rising integers from 1, separated by commas")
    return values


def measure_table(
    scale: Scale, target: LoadedModel, trace: SyntheticTrace, more: tuple[Any, ...] = (), name: str = ""
) -> CostTable:
    """A cost table of a target whose block drafter is the stand-in.

    more    further drafters, see `profile`
    name    the table's name (empty: made of the target's)
    """

    def block_drafter(setup: LiveSetup) -> ReplayedDrafter:
        return ReplayedDrafter(Recording(trace, setup), 0, setup, scale.draft_cost)

    options = ProfileOptions(
        batches=scale.batches,
        contexts=scale.contexts,
        max_tokens=scale.batches[-1] * (scale.depth + 1),
        depth=scale.depth,
        repeats=scale.repeats,
        time_budget=scale.time_budget,
        name=name or f"{Path(target.name).stem}-{scale.device}",
        command=" ".join(sys.argv),
        licence="Apache-2.0",
    )
    table = profile(target, [block_drafter, *more], options)
    gc.collect()  # the engines that were profiled refer to each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return table


def full_steps(rows: np.ndarray, batch: int, skip: int) -> np.ndarray:
    """Which steps count: all requests decode, no prompt is computed beside them, and the warm-up is over."""
    counted = (rows["batch"] == batch) & (rows["prefill_tokens"] == 0)
    counted[:skip] = False
    return counted


def step_seconds(rows: np.ndarray) -> np.ndarray:
    """[steps] float64, seconds of each step."""
    return sum(rows[name] for name in rows.dtype.names or () if name.endswith("_seconds"))  # type: ignore[return-value]


def command(main: Callable[[argparse.Namespace], dict[str, Any]], description: str, **more: dict[str, Any]) -> int:
    """Run a script: its options, one JSON object as the last line, and the same in a file."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--tiny", action="store_true", help="a small model on the CPU, to try the script out")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "results/h200")), help="folder to write")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads")
    for name, options in more.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **options)
    arguments = parser.parse_args()
    if not arguments.tiny and not torch.cuda.is_available():
        print("no CUDA device here; --tiny tries the script out", file=sys.stderr)
        return 2
    prepare(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        result = {"tiny": arguments.tiny} | main(arguments)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    (arguments.out / f"{Path(sys.argv[0]).stem}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    return 0
