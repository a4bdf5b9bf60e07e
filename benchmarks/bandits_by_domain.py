"""What drafter policies make of a stream whose domain changes: chat, code, math, chat and so on, in segments.

The simulator plays a position-indexed trace in that order at the seconds of a cost table: drafting and switching are
paid for. Each drafter policy is put beside the best fixed drafter (of all seeds together) and beside an oracle that
knows each segment's best drafter and switches for nothing. A seed draws which requests of a domain come, and the
policy's luck; all policies of a seed meet the same stream. Throughput is output tokens over seconds; intervals are
90 % bootstrap intervals of the mean ratio over seeds.

    python benchmarks/bandits_by_domain.py [--trace smollm2-cpu] [--cost cpu-smollm2] [--batches 1,8] [--seeds 5]
        [--segments 9] [--requests 12] [--budget dcut:ratios=all,numerator=bonus] [--out FILE] [--synthetic] [--tiny]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from specsim.core import Blocks, DrafterSpec
from specsim.cost import CostTable
from specsim.cost.examples import linear_table
from specsim.policies.build import ARMS, build_controller
from specsim.serving.engine_config import EngineConfig
from specsim.shipped import shipped_path
from specsim.sim.simulate import simulate
from specsim.sim.workload import TraceArrivals
from specsim.study.bootstrap import paired_interval
from specsim.trace import Trace, TraceLike
from specsim.trace.manifest import Manifest, TraceKind
from specsim.trace.requests import Requests
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace

DCUT = "dcut:ratios=all,numerator=bonus"

ORDER_OF_DOMAINS = ("chat", "code", "math")
"""Others follow as the trace names them."""

NO_POLICY = ("fixed_arm",)

JUDGES = {"kl_ucb": "", "change_point": ":reward=throughput,base=thompson_gaussian"}
"""What policies judge by that are not content with `reward=throughput`: kl_ucb needs rewards in [0, 1]."""

MORE = ("contextual:policy=ucb1/reward=throughput/c=0.5,scope=request", "ucb1:reward=throughput,c=0.1")
"""Beside each policy with its own defaults, and `reward=throughput` where it has rewards to choose from."""


@dataclass(frozen=True)
class InOrder:
    """A trace whose requests come in a given order, some of them several times, all waiting from the start.

    trace  whose
    rows   [N] int64, its request at each place
    """

    trace: TraceLike
    rows: np.ndarray

    @property
    def manifest(self) -> Manifest:
        """See `TraceLike`."""
        return self.trace.manifest

    @property
    def kind(self) -> TraceKind:
        """See `TraceLike`."""
        return self.trace.kind

    @property
    def drafters(self) -> tuple[DrafterSpec, ...]:
        """See `TraceLike`."""
        return self.trace.drafters

    @property
    def requests(self) -> Requests:
        """The requests in their order."""
        taken = self.trace.requests.take(self.rows)
        return replace(taken, arrival_at=np.zeros(len(self.rows)))

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, index: int, drafter: int) -> Blocks:
        """See `TraceLike`."""
        return self.trace.blocks(int(self.rows[index]), drafter)

    def visits(self, index: int, drafter: int) -> tuple[np.ndarray, Blocks]:
        """See `TraceLike`."""
        return self.trace.visits(int(self.rows[index]), drafter)


@dataclass(frozen=True)
class Study:
    """What is played.

    trace, cost    names or folders; the trace `synthetic` is made up, with costs of its own
    segments       in all
    requests       of a segment
    budget         what is verified, whoever drafts
    """

    trace: str
    cost: str
    segments: int
    requests: int
    budget: str


@dataclass(frozen=True)
class Played:
    """One policy on one seed's stream.

    tokens, seconds  in all
    by_segment       [segments] float64, seconds in which each segment's tokens came, wherever they belong
    shares           share of decode steps by drafter
    """

    tokens: int
    seconds: float
    by_segment: np.ndarray
    shares: dict[str, float]

    @property
    def throughput(self) -> float:
        """Output tokens a second."""
        return self.tokens / self.seconds


def policies() -> list[str]:
    """Every drafter policy that chooses, judging by throughput where it can."""
    found = []
    for name, kind in ARMS.items():
        if name not in NO_POLICY:
            options = {field.name for field in fields(kind)}
            judges = ":reward=throughput" if "reward" in options else ""
            found.append(name + JUDGES.get(name, judges))
    return [*found, *MORE]


@cache
def materials(study: Study) -> tuple[TraceLike, CostTable]:
    """The trace and the cost table."""
    if study.trace == "synthetic":
        return made_up()
    return Trace.open(shipped_path("trace", study.trace)), CostTable.open(study.cost, extrapolate=True)


def made_up() -> tuple[TraceLike, CostTable]:
    """Three made-up drafters of equal cost, each at home in one domain."""
    home = {"chat": "one", "code": "two", "math": "three"}
    drafters = tuple(
        SyntheticDrafter(
            name,
            mean_acceptance_length=3.5,
            domain_difficulty={domain: 0.6 if own == name else 1.6 for domain, own in home.items()},
            max_depth=7,
        )
        for name in home.values()
    )
    config = SyntheticConfig(
        "domains",
        drafters,
        96,
        domains=dict.fromkeys(home, 1.0),
        num_prompt_tokens=(32, 128),
        num_output_tokens=(64, 192),
    )
    prices = dict.fromkeys(home.values(), 0.001)
    return SyntheticTrace(config), linear_table(8e-3, 4e-5, (1, 2048), drafters=prices)


def stream(trace: TraceLike, study: Study, seed: int) -> np.ndarray:
    """[segments * requests] int64, rows of the trace: domain after domain, requests of a domain in a random order."""
    requests, rng = trace.requests, np.random.default_rng([seed, 77])
    known = [name for name in (*ORDER_OF_DOMAINS, *requests.domains) if name in requests.domains]
    names = list(dict.fromkeys(known))
    own = {name: np.flatnonzero(requests.domain == requests.domains.index(name)) for name in names}
    turns = {name: cycle(rng.permutation(rows).tolist()) for name, rows in own.items() if len(rows)}
    order = islice(cycle(list(turns)), study.segments)
    return np.array([row for name in order for row in islice(turns[name], study.requests)], np.int64)


def play(study: Study, arms: str, batch: int, seed: int) -> Played:
    """One policy, or one drafter by its name, on one seed's stream."""
    trace, cost = materials(study)
    ordered = InOrder(trace, stream(trace, study, seed))
    controller = build_controller(f"{study.budget}@{arms}", trace.drafters)
    engine = EngineConfig(max_num_seqs=batch)
    run = simulate(ordered, cost, controller, engine, TraceArrivals(), seed=seed, record_steps=True)
    assert run.steps is not None
    names = [*(drafter.name for drafter in run.drafters), "plain"]
    shares = dict(zip(names, (run.arm_steps / max(run.arm_steps.sum(), 1)).tolist(), strict=True))
    return Played(
        run.totals.num_emitted + run.totals.num_first, run.duration, segments(ordered, run.steps, study), shares
    )


def segments(trace: InOrder, steps: np.ndarray, study: Study) -> np.ndarray:
    """[segments] float64 seconds of a run between the tokens that end one segment and the next.

    Requests run side by side, so the last ones of a segment overlap with the first ones of the next. Counting the
    stream's decoded tokens, whosesoever, splits every run of the stream at the same places.
    """
    decoded = trace.requests.num_output_tokens.reshape(study.segments, study.requests).sum(axis=1) - study.requests
    ends = np.cumsum(decoded)
    phases = [steps[name] for name in steps.dtype.names or () if name.endswith("_seconds")]
    instants = np.concatenate([[0.0], steps["started_at"] + sum(phases)])
    emitted = np.concatenate([[0], np.cumsum(steps["num_emitted"])])
    step = np.searchsorted(emitted, ends)  # the first one after which so many are there
    share = (ends - emitted[step - 1]) / (emitted[step] - emitted[step - 1])
    last = instants[step - 1] + share * (instants[step] - instants[step - 1])
    return np.diff(np.concatenate([[0.0], last]))


def judged(runs: dict[str, list[Played]], drafters: Sequence[str]) -> dict[str, Any]:
    """Policies beside the best fixed drafter and the oracle, at one batch.

    runs      of each policy and each drafter, by seed
    drafters  names of the fixed ones
    """
    means = {name: float(np.mean([run.throughput for run in runs[name]])) for name in runs}
    best = max(drafters, key=lambda name: means[name])
    reference = np.array([run.throughput for run in runs[best]])
    fastest = [
        np.min([runs[name][seed].by_segment for name in drafters], axis=0).sum() for seed in range(len(reference))
    ]
    oracle = np.array([run.tokens / seconds for run, seconds in zip(runs[best], fastest, strict=True)])
    rows = {}
    for name, played in runs.items():
        own = np.array([run.throughput for run in played])
        low, high = paired_interval(own / reference)
        shares = {arm: round(float(np.mean([run.shares[arm] for run in played])), 3) for arm in played[0].shares}
        rows[name] = {
            "tokens_per_second": round(means[name], 3),
            "over_best_fixed": round(float((own / reference).mean()), 4),
            "interval": [round(low, 4), round(high, 4)],
            "over_oracle": round(float((own / oracle).mean()), 4),
            "verdict": "below the best fixed drafter" if high < 1 else "above it" if low > 1 else "no difference seen",
            "shares": {arm: share for arm, share in shares.items() if share},
        }
    below = [name for name, row in rows.items() if name not in drafters and row["interval"][1] < 1]
    return {
        "best_fixed": best,
        "oracle_over_best_fixed": round(float((oracle / reference).mean()), 4),
        "below_the_best_fixed": below,
        "policies": rows,
    }


def table(batch: str, found: dict[str, Any]) -> str:
    """One batch's findings as text."""
    lines = [
        f"batch {batch}: best fixed drafter {found['best_fixed']}, oracle {found['oracle_over_best_fixed']:.3f} of it"
    ]
    for name, row in sorted(found["policies"].items(), key=lambda item: -item[1]["over_best_fixed"]):
        low, high = row["interval"]
        lines.append(f"  {name:62} {row['over_best_fixed']:6.3f} [{low:.3f}, {high:.3f}]  {row['verdict']}")
    return "\n".join(lines)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", default="smollm2-cpu", help="folder or shipped name of a position-indexed trace")
    parser.add_argument("--cost", default="cpu-smollm2", help="folder or shipped name of a cost table")
    parser.add_argument("--synthetic", action="store_true", help="a made-up trace and table instead")
    parser.add_argument("--batches", default="1,8", help="requests at a time, with commas between")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--segments", type=int, default=9)
    parser.add_argument("--requests", type=int, default=12, help="of a segment")
    parser.add_argument("--budget", default=DCUT, help="what is verified, whoever drafts")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--out", type=Path, default=None, help="file to write the result to")
    parser.add_argument("--tiny", action="store_true", help="two seeds of a short stream, to try the script out")
    arguments = parser.parse_args()
    if arguments.tiny:
        arguments.seeds, arguments.segments, arguments.requests, arguments.batches = 2, 3, 2, "2"
        arguments.jobs = 1
    return arguments


def main() -> int:
    """Play, judge, and print one JSON object as the last line."""
    arguments = options()
    trace = "synthetic" if arguments.synthetic else arguments.trace
    study = Study(trace, arguments.cost, arguments.segments, arguments.requests, arguments.budget)
    drafters = [drafter.name for drafter in materials(study)[0].drafters]
    names, seeds = [*drafters, *policies()], range(arguments.seeds)
    batches = [int(batch) for batch in arguments.batches.split(",")]
    keys = [(name, batch, seed) for batch in batches for name in names for seed in seeds]
    if arguments.jobs > 1:
        with ProcessPoolExecutor(arguments.jobs) as pool:
            found = list(pool.map(play, [study] * len(keys), *zip(*keys, strict=True), chunksize=2))
    else:
        found = [play(study, *key) for key in keys]
    played = dict(zip(keys, found, strict=True))
    by_batch = {}
    for batch in batches:
        runs = {name: [played[name, batch, seed] for seed in seeds] for name in names}
        by_batch[str(batch)] = judged(runs, drafters)
        print(table(str(batch), by_batch[str(batch)]), flush=True)
    result = {
        "tiny": arguments.tiny,
        "trace": Path(trace).name,
        "cost": materials(study)[1].name,
        "drafters": drafters,
        "segments": study.segments,
        "requests_a_segment": study.requests,
        "seeds": arguments.seeds,
        "budget": study.budget,
        "batches": by_batch,
    }
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
