"""How long a policy-step of the regret study takes: one pull and one update of one run, environment included.

200 seeds side by side, T = 10,000 steps, three Bernoulli arms. Processor seconds of this process, so that others who
use the machine do not count; wall seconds are printed beside them.

    python benchmarks/regret.py

The last line printed is one JSON object. Target: under 1 us for UCB1 and for Thompson sampling.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time

import numpy as np

from specsim.policies.build import build_arms
from specsim.policies.config import PolicyConfig
from specsim.study.regret.bernoulli import FLASHSPEC_MEANS, bernoulli
from specsim.study.regret.play import play, play_twin
from specsim.study.regret.study import DEFAULT_POLICIES, NUM_SEEDS
from specsim.study.regret.twins.build import build_twin
from specsim.study.regret.twins.one_by_one import OneByOne

NUM_STEPS = 10_000
TARGETS = ("ucb1", "thompson_beta")
FIVE_SEEDS = [0, 1, 2, 3, 4]


def built(text: str):  # type: ignore[no-untyped-def]
    """A fresh drafter policy."""
    return build_arms(PolicyConfig.model_validate(text), len(FLASHSPEC_MEANS))


def agrees(text: str) -> bool:
    """Whether the twin pulls what the definitions pull: what is wrong is not timed."""
    environment = bernoulli("one_swap", 300)
    twin = play_twin(build_twin(built(text), 3), environment, [0, 1, 2])
    definition = play_twin(OneByOne(built(text), 3), environment, [0, 1, 2])
    return bool(np.array_equal(twin.regret, definition.regret))


def main() -> None:
    """Check, then measure and print."""
    environment, seeds = bernoulli("stationary", NUM_STEPS), list(range(NUM_SEEDS))
    steps = NUM_STEPS * NUM_SEEDS
    measured: dict[str, dict[str, float]] = {}
    for text in DEFAULT_POLICIES:
        if not agrees(text):
            sys.exit(f"{text}: the twin does not pull what the definition pulls: nothing is measured")
        busy, wall = time.process_time(), time.perf_counter()
        played = play(built(text), environment, seeds)
        busy, wall = time.process_time() - busy, time.perf_counter() - wall
        measured[text] = {
            "microseconds": round(busy / steps * 1e6, 3),
            "wall_microseconds": round(wall / steps * 1e6, 3),
            "regret": round(float(played.regret[-1].mean()), 1),
        }
        print(f"{text:55} {measured[text]['microseconds']:6.2f} us   regret {measured[text]['regret']:7.1f}")
    five = {text: round(float(play(built(text), environment, FIVE_SEEDS).regret[-1].mean()), 1) for text in TARGETS}
    result = {
        "benchmark": "regret",
        "seeds": NUM_SEEDS,
        "steps": NUM_STEPS,
        "arms": len(FLASHSPEC_MEANS),
        "policies": measured,
        "regret_of_seeds_0_to_4": five,
        "over_target": {text: measured[text]["microseconds"] for text in TARGETS},
        "processors": os.cpu_count(),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
