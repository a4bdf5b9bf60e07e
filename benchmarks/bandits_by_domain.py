"""What drafter policies make of a stream whose domain changes: chat, code, math, chat and so on, in segments.

The simulator plays a position-indexed trace in that order at the seconds of a cost table: drafting and switching are
paid for. Each drafter policy is put beside the best fixed drafter (of all seeds together) and beside an oracle that
knows each segment's best drafter and switches for nothing. A seed draws which requests of a domain come, and the
policy's luck; all policies of a seed meet the same requests. Throughput is output tokens over seconds, both of all
seeds together; intervals are 90 % bootstrap intervals over seeds.

Policies play with their own defaults and, apart, with options chosen on another trace, `--tune`, for the same drafters
and batch under the first budget.

    python benchmarks/bandits_by_domain.py [--trace smollm2-domains] [--cost cpu-smollm2-drafters] [--batches 1,8]
        [--seeds 5] [--segments 9] [--requests 8] [--arms all --arms eagle-chat,eagle-code,eagle-math,ngram]
        [--budget dcut:ratios=all,numerator=bonus] [--recorded] [--tune smollm2-drafters-warm] [--out FILE [--keep]]
        [--synthetic] [--tiny]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from bandit_streams import Played, Study, arms_of, materials, play

from specsim.errors import InputError
from specsim.policies.build import ARMS
from specsim.study.bootstrap import CONFIDENCE, GENERATOR_SEED, NUM_RESAMPLES

DCUT = "dcut:ratios=all,numerator=bonus"
PLAIN = "autoregressive"

NO_POLICY = ("fixed_arm",)

JUDGES = {"kl_ucb": "", "change_point": ":reward=throughput,base=thompson_gaussian"}
"""What policies judge by that are not content with `reward=throughput`: kl_ucb needs rewards in [0, 1]."""

CANDIDATES: dict[str, tuple[str, ...]] = {
    "ucb1": tuple(f"ucb1:reward=throughput,c={c}" for c in (0.05, 0.1, 0.3, 0.6)),
    "sliding_window_ucb": tuple(
        f"sliding_window_ucb:reward=throughput,c={c},window={window}" for c, window in product((0.1, 0.3), (100, 300))
    ),
    "thompson_gaussian": tuple(f"thompson_gaussian:sigma={sigma}" for sigma in (0.1, 0.25, 1.0)),
    "discounted_thompson_gaussian": tuple(
        f"discounted_thompson_gaussian:sigma={sigma},discount={discount}"
        for sigma, discount in product((0.1, 0.25), (0.98, 0.995))
    ),
    "change_point": tuple(
        f"change_point:reward=throughput,base=thompson_gaussian,explore={explore}" for explore in (0.005, 0.02, 0.1)
    ),
    "contextual": (
        *(f"contextual:policy=ucb1/reward=throughput/c={c}" for c in (0.1, 0.3, 1.0)),
        *(f"contextual:policy=ucb1/reward=throughput/c={c},scope=request" for c in (0.1, 0.3, 1.0)),
        "contextual:policy=thompson_gaussian/sigma=0.25",
        "contextual:policy=thompson_gaussian/sigma=0.25,scope=request",
    ),
}
"""Options that are tried on the trace of `--tune`, beside those of `policies`."""

TUNING_SEED, TUNING_SEEDS = 1000, 2
"""First seed of the streams that options are chosen on, and how many of them."""


def policies() -> list[str]:
    """Every drafter policy that chooses, judging by throughput where it can."""
    found = []
    for name, kind in ARMS.items():
        if name not in NO_POLICY:
            options = {field.name for field in fields(kind)}
            judges = ":reward=throughput" if "reward" in options else ""
            found.append(name + JUDGES.get(name, judges))
    return found


def _defaults(family: str) -> list[str]:
    """A policy with its own defaults."""
    return [name for name in policies() if name.split(":")[0] == family]


def ratio(own: Sequence[Played], other: Sequence[Played]) -> float:
    """Throughput of all runs of one over that of all runs of the other."""
    return throughput(own) / throughput(other)


def throughput(runs: Sequence[Played]) -> float:
    """Tokens a second of all runs together."""
    return sum(run.tokens for run in runs) / sum(run.seconds for run in runs)


def interval(own: Sequence[Played], other: Sequence[Played]) -> tuple[float, float]:
    """90 % bootstrap interval of `ratio` over seeds; seed by seed the tokens of both are the same."""
    seconds = np.array([[run.seconds for run in own], [run.seconds for run in other]])
    tokens = np.array([run.tokens for run in own])
    drawn = np.random.default_rng(GENERATOR_SEED).integers(0, len(own), (NUM_RESAMPLES, len(own)))
    mine, theirs = (tokens[drawn].sum(axis=1) / row[drawn].sum(axis=1) for row in seconds)
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(mine / theirs, (tail, 1.0 - tail))
    return float(low), float(high)


def judged(runs: dict[str, list[Played]], drafters: Sequence[str], tuned: Sequence[str] = ()) -> dict[str, Any]:
    """Policies beside the best fixed drafter and the oracle, at one batch.

    runs      of each policy and each drafter, by seed
    drafters  names of the fixed ones
    tuned     policies whose options were chosen on another trace

    Raises  ValueError where two runs of a seed have other tokens, and so other requests
    """
    tokens = {tuple(run.tokens for run in played) for played in runs.values()}
    if len(tokens) != 1:
        raise ValueError("runs of a seed must serve the same requests")
    best = max(drafters, key=lambda name: throughput(runs[name]))
    reference = runs[best]
    fastest = [
        np.min([runs[name][seed].by_segment for name in drafters], axis=0).sum() for seed in range(len(reference))
    ]
    oracle = sum(run.tokens for run in reference) / float(sum(fastest))
    rows = {}
    for name, played in runs.items():
        low, high = interval(played, reference)
        rows[name] = {
            "tokens_per_second": round(throughput(played), 3),
            "over_best_fixed": round(ratio(played, reference), 4),
            "interval": [round(low, 4), round(high, 4)],
            "over_oracle": round(throughput(played) / oracle, 4),
            "verdict": "below the best fixed drafter" if high < 1 else "above it" if low > 1 else "no difference seen",
            "kind": "fixed" if name in (*drafters, PLAIN) else "policy" if name in policies() else "tuned",
            "shares": _means([run.shares for run in played]),
            "phases": _means([run.phases for run in played]),
        }
    return {
        "best_fixed": best,
        "tokens": [run.tokens for run in reference],
        "oracle_over_best_fixed": round(oracle / throughput(reference), 4),
        "tuned": list(tuned),
        "below_the_best_fixed": [
            name for name, row in rows.items() if row["kind"] != "fixed" and row["interval"][1] < 1
        ],
        "policies": rows,
    }


def _means(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """Means of shares by name, those that are nothing left out."""
    means = {name: round(float(np.mean([own[name] for own in found])), 3) for name in found[0]}
    return {name: share for name, share in means.items() if share}


def table(cell: dict[str, Any]) -> str:
    """One cell's findings as text."""
    arms, over = ", ".join(cell["arms"]), cell["oracle_over_best_fixed"]
    head = f"batch {cell['batch']}, {cell['budget']}, of {arms}: best fixed drafter {cell['best_fixed']}"
    lines = [f"{head}, oracle {over:.3f} of it"]
    for name, row in sorted(cell["policies"].items(), key=lambda item: -item[1]["over_best_fixed"]):
        low, high = row["interval"]
        numbers = f"{row['over_best_fixed']:6.3f} [{low:.3f}, {high:.3f}]  {row['kind']:6}  {row['verdict']}"
        lines.append(f"  {name:82} {numbers}")
    return "\n".join(lines)


class Player:
    """Plays runs, in processes where there are several.

    jobs   processes
    seeds  streams of each run
    """

    def __init__(self, jobs: int, seeds: int) -> None:
        self._pool = ProcessPoolExecutor(jobs) if jobs > 1 else None
        self.seeds = seeds
        self._tuned: dict[tuple[tuple[str, ...], int], list[str]] = {}

    def runs(
        self, study: Study, names: Sequence[str], batch: int, seeds: range | None = None
    ) -> dict[str, list[Played]]:
        """Runs of each policy by seed.

        seeds  of other streams than those that are judged
        """
        seeds = seeds or range(self.seeds)
        keys = [(name, batch, seed) for name in names for seed in seeds]
        mapped = map if self._pool is None else self._pool.map
        found = iter(mapped(play, [study] * len(keys), *zip(*keys, strict=True)))
        return {name: [next(found) for _ in seeds] for name in names}

    def tuned(self, study: Study, batch: int) -> list[str]:
        """Of each policy with candidates, the options of the largest throughput on streams of a trace."""
        place = study.drafters, batch
        if place not in self._tuned:
            families = {name: (*own, *_defaults(name)) for name, own in CANDIDATES.items()}
            names = [name for own in families.values() for name in own]
            runs = self.runs(study, names, batch, range(TUNING_SEED, TUNING_SEED + TUNING_SEEDS))
            best = [max(own, key=lambda name: throughput(runs[name])) for own in families.values()]
            self._tuned[place] = best
        return self._tuned[place]


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", default="smollm2-domains", help="folder or shipped name of a position-indexed trace")
    parser.add_argument(
        "--cost", default="cpu-smollm2-drafters", help="folder or shipped name of a cost table, or made-up"
    )
    parser.add_argument("--synthetic", action="store_true", help="a made-up trace and table instead")
    parser.add_argument("--batches", default="1,8", help="requests at a time, with commas between")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--segments", type=int, default=9)
    parser.add_argument("--requests", type=int, default=8, help="of a segment")
    parser.add_argument("--arms", action="append", help="drafters to choose among, or all; once for each set")
    parser.add_argument("--budget", action="append", help="what is verified, whoever drafts; once for each")
    parser.add_argument("--recorded", action="store_true", help="requests in the trace's own order")
    parser.add_argument("--tune", help="trace on whose shuffled streams options are chosen")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--out", type=Path, default=None, help="file to write the result to")
    parser.add_argument("--keep", action="store_true", help="the cells that the file holds and this run has not")
    parser.add_argument("--tiny", action="store_true", help="two seeds of a short stream, to try the script out")
    arguments = parser.parse_args()
    if arguments.keep and not (arguments.out and arguments.out.is_file()):
        parser.error("--keep needs a file of --out that is there")
    if arguments.tiny:
        arguments.seeds, arguments.segments, arguments.requests, arguments.batches = 2, 3, 2, "2"
        arguments.jobs = 1
    return arguments


def studied(arguments: argparse.Namespace) -> dict[str, Any]:
    """Play all cells, and print each."""
    trace = "synthetic" if arguments.synthetic else arguments.trace
    player, cells = Player(arguments.jobs, arguments.seeds), []
    sizes = (arguments.segments, arguments.requests)
    for arms, budget in product(arguments.arms or ["all"], arguments.budget or [DCUT]):
        chosen = () if arms == "all" else tuple(arms.split(","))
        study = Study(trace, arguments.cost, *sizes, budget, chosen, arguments.recorded)
        recording, prices = materials(study)
        names = [recording.drafters[arm].name for arm in arms_of(recording, study)]
        for batch in map(int, arguments.batches.split(",")):
            apart = replace(study, trace=arguments.tune or trace, recorded=False)
            tuned = player.tuned(apart, batch) if arguments.tune else []
            played = list(dict.fromkeys([*names, PLAIN, *policies(), *tuned]))
            found = judged(player.runs(study, played, batch), names, tuned)
            cells.append({"cost": prices.name, "arms": names, "budget": budget, "batch": batch} | found)
            print(table(cells[-1]), flush=True)
    return {
        "tiny": arguments.tiny,
        "trace": Path(trace).name,
        "segments": sizes[0],
        "requests_a_segment": sizes[1],
        "order": "recorded" if arguments.recorded else "shuffled within each domain",
        "seeds": arguments.seeds,
        "tuned_on": arguments.tune,
        "cells": cells,
    }


def compact(result: dict[str, Any]) -> str:
    """JSON with a line for each policy."""
    text = json.dumps(result | {"cells": "@"}, indent=1)
    cells = []
    for cell in result["cells"]:
        rows = ",\n".join(f"   {json.dumps(name)}: {json.dumps(row)}" for name, row in cell["policies"].items())
        head = json.dumps(cell | {"policies": "@"})
        cells.append("  " + head.replace('"@"', f"{{\n{rows}\n  }}"))
    return text.replace('"@"', "[\n" + ",\n".join(cells) + "\n ]") + "\n"


def kept(file: Path, result: dict[str, Any]) -> dict[str, Any]:
    """A result with the cells that a file holds and it has not, before its own.

    Raises  InputError where the file is of another study
    """
    before = json.loads(file.read_text())
    for key in result:
        if key != "cells" and before[key] != result[key]:
            raise InputError(f"{file}: {key} is {before[key]}, here {result[key]}; --keep adds to the same study")
    own = {_place(cell) for cell in result["cells"]}
    return result | {"cells": [*(cell for cell in before["cells"] if _place(cell) not in own), *result["cells"]]}


def _place(cell: dict[str, Any]) -> tuple[Any, ...]:
    """What a cell is of."""
    return cell["cost"], cell["budget"], cell["batch"], *cell["arms"]


def main() -> int:
    """Play, judge, and print one JSON object as the last line."""
    arguments = options()
    try:
        result = studied(arguments)
        if arguments.keep:
            result = kept(arguments.out, result)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(compact(result))
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
