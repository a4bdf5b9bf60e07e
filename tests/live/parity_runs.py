"""Short live runs on a tiny model that meet everything a step can meet, recorded and taken again."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from specsim.cost.examples import staircase_table
from specsim.live.engine import Engine
from specsim.live.requests import LiveRequest
from specsim.live.sampling import SamplingParams
from specsim.live.trajectory import TrajectoryRecorder
from specsim.sim.rerun import Rerun
from specsim.sim.rerun_run import LiveRun
from tests.live.engine.engines import build_engine

DEPTH = 5
DRAFTERS = ("ngram", "exit3")
LIMITS = {"max_num_seqs": 3, "max_num_batched_tokens": 24, "block_size": 4, "num_kv_blocks": 17, "max_model_len": 64}
"""Prompts longer than a step's tokens, and fewer blocks than three requests come to need."""

PRICES = dict.fromkeys(("ngram", "exit1", "exit2", "exit3"), 2e-4)
TABLE = staircase_table({2: 1e-3, 4: 1.1e-3, 8: 1.6e-3, 16: 3e-3, 32: 8e-3}, (1, 2, 3), PRICES, DEPTH)
TEMPERED = SamplingParams(max_tokens=10, temperature=0.8, seed=11)


@dataclass
class Recorded:
    """A run that was recorded.

    preempted, inside   preemptions, and requests that a stop token or text ended inside a block
    """

    folder: object
    engine: Engine
    requests: list[LiveRequest] = field(default_factory=list)
    inside: int = 0

    def on_step(self, row, step, emission):
        if emission is not None:
            self.inside += int((emission.stopped & (emission.num_emitted <= step.verified)).sum())

    def on_request(self, request):
        pass


def drive(engine: Engine) -> list[LiveRequest]:
    """Four requests: a repeated prompt, a long tempered one, and two that arrive when the engine is at work."""
    looped = np.resize([5, 6, 7], 9)
    requests = [
        engine.submit(looped, SamplingParams(max_tokens=14), domain="loop"),
        engine.submit(np.arange(2, 40), TEMPERED, domain="long"),
    ]
    for _ in range(3):
        engine.step()
    requests.append(engine.submit([9, 8, 9, 8, 9, 8, 9], SamplingParams(max_tokens=16), domain="loop"))
    engine.step()
    requests.append(engine.submit(looped[::-1], SamplingParams(max_tokens=12, stop=("f f f f f f",)), domain="loop"))
    engine.run()
    return requests


def record(target, spec, folder, *, drafters=DRAFTERS, drive=drive, mutate=None, seed=3, cost=TABLE, **limits):
    """Run a controller live and write the run down.

    mutate  called with the engine before it runs
    """
    engine = build_engine(target, spec, drafters, depth=DEPTH, seed=seed, cost=cost, **LIMITS | limits)
    recorded = Recorded(folder, engine)
    engine.observers.append(recorded)
    if mutate is not None:
        mutate(engine)
    with TrajectoryRecorder(folder, engine):
        recorded.requests = drive(engine)
    return recorded


def take_again(folder):
    """The steps of a run taken again, and the first difference."""
    rerun = Rerun(LiveRun.open(folder))
    return list(rerun.steps()), rerun.difference
