"""A study that looks like a real one: two cost tables, six batch sizes, nine policies, three drafters."""

import math

import numpy as np
import pytest

from specsim.study.result import Cell, DrafterStatistics, StudyResult

DEPTH = 15
POLICIES = {
    "autoregressive": 0.0,
    "fixed_depth:depth=3@exit28": 0.2,
    "fixed_depth:depth=7@exit28": 0.47,
    "fixed_depth:depth=15@exit28": 1.0,
    "fixed_ratio:ratio=0.5@exit28": 0.5,
    "dcut@exit28": 0.3,
    "dcut:count=code@ucb1:reward=throughput": 0.32,
    "dcut@thompson": 0.31,
    "clairvoyant@exit28": 0.25,
}
"""Share of fifteen drafts that each policy verifies."""
TABLES = ("h20-qwen3-8b", "cpu-smollm2")
BATCHES = (1, 4, 8, 16, 32, 64)
DRAFTERS = {"ngram": 0.45, "exit24": 0.62, "exit28": 0.78}


def survival(rate):
    return [float(rate * 0.97**k) ** k for k in range(1, DEPTH + 1)]


def make_cell(table, batch, policy, verified, baseline, rng):
    """One cell whose numbers follow a crude cost model: batch x verified tokens beyond a knee cost."""
    slope = 0.012 if table == TABLES[0] else 0.05
    adaptive = not policy.startswith(("fixed", "autoregressive"))
    share = verified / (1 + slope * batch) if adaptive else verified
    kept = round(share * DEPTH)
    emitted = 1 + sum(survival(0.78)[:kept]) * (1.12 if adaptive else 1.0)
    speedup = emitted / (1.08 + slope * batch * share * 2) if verified else 1.0
    speedup *= 1.05 if policy.startswith("clairvoyant") else 1.0
    half = 0.0 if not verified else 0.01 + 0.02 * rng.random()
    interval = (speedup * (1 - half), speedup * (1 + half))
    throughput = baseline * speedup
    steps = np.arange(200)
    ratio = np.clip(share + (0.1 * rng.standard_normal(200) if adaptive else np.zeros(200)), 0, 1)
    fraction = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999]
    gap = batch / throughput
    return Cell(
        table=table,
        batch=batch,
        policy=policy,
        values={
            "token_throughput": throughput,
            "speedup": speedup,
            "tpot_p50": gap,
            "tpot_p99": 1.4 * gap,
            "ttft_p50": 4 * gap,
            "ttft_p99": 9 * gap,
            "itl_p50": 0.9 * gap,
            "itl_p99": 2.5 * gap,
            "e2e_p50": 128 * gap,
            "e2e_p99": 180 * gap,
            "goodput": math.nan,
            "mean_acceptance_length": emitted,
            "acceptance_rate": (emitted - 1) / kept if kept else math.nan,
            "draft_yield": (emitted - 1) / DEPTH,
            "budget_ratio": share,
            "wasted_verification": 1 - (emitted - 1) / kept if kept else math.nan,
            "num_preemptions": 0.0,
        },
        speedup_interval=interval,
        difference_to_best_fixed=(speedup / 1.6 - 1, speedup / 1.6 - 1.02, speedup / 1.6 - 0.98),
        share_of_clairvoyant=min(1.0, speedup / 2),
        slower_than_autoregressive=interval[1] < 1,
        not_distinguishable=interval[0] <= 1 <= interval[1],
        acceptance_by_position=survival(0.78)[:kept] + [math.nan] * (DEPTH - kept) if verified else [],
        verified_by_position=[1.0 if k < kept else 0.4 ** (k - kept + 1) * adaptive for k in range(DEPTH)]
        if verified
        else [],
        arm_share=arm_share(policy, batch),
        lossy_reason=None,
        clairvoyant=policy.startswith("clairvoyant"),
        notes=("draft cost of exit28 derived from hint: 0.93 of a plain step",)
        if table == TABLES[0] and verified
        else (),
        latency={"fraction": fraction, "itl_seconds": [gap * (0.5 + 0.5 * f / (1.02 - f) ** 0.4) for f in fraction]},
        series={
            "started_at": [float(at) for at in steps * 0.02],
            "budget_ratio": [float(value) for value in ratio] if verified else [math.nan] * 200,
            "emitted_per_request": [emitted] * 200,
            "arm": [0.0] * 200,
            "cumulative_tokens": [float(at) for at in steps * throughput * 0.02],
            "regret_tokens": [float(at) for at in steps * baseline * (1.6 - speedup) * 0.02],
        },
        best_fixed="fixed_depth:depth=7@exit28",
        fixed=policy.startswith("fixed"),
    )


def arm_share(policy, batch):
    if policy == "autoregressive":
        return {"ngram": 0.0, "exit24": 0.0, "exit28": 0.0, "none": 1.0}
    if "ucb1" in policy or "thompson" in policy:
        plain = 0.002 * batch
        return {"ngram": 0.1, "exit24": 0.2, "exit28": 0.7 - plain, "none": plain}
    return {"ngram": 0.0, "exit24": 0.0, "exit28": 1.0, "none": 0.0}


def make_drafter(name, domain, rate):
    centres = [0.05 + 0.1 * k for k in range(10)]
    return DrafterStatistics(
        name=name,
        domain=domain,
        mean_acceptance_length=1 + sum(survival(rate)),
        survival=survival(rate),
        conditional=[rate] * DEPTH,
        calibration={
            "bin_confidence": centres,
            "bin_accepted": [centre**1.4 * (0.6 + rate / 2) for centre in centres],
            "bin_count": [float(int(100 + 4000 * centre**4)) for centre in centres],
        },
        ece=0.081,
        auc=0.83,
    )


@pytest.fixture
def make_study():
    """A function that makes a study; its arguments replace tables, batches and policies."""

    def make(tables=TABLES, batches=BATCHES, policies=tuple(POLICIES), **changes):
        rng = np.random.default_rng(7)
        cells = [
            make_cell(table, batch, policy, POLICIES.get(policy, 0.4), 90.0 * batch**0.8, rng)
            for table in tables
            for batch in batches
            for policy in policies
        ]
        domains = {"all": 0.0, "chat": -0.03, "code": 0.02, "math": 0.04}
        drafters = [
            make_drafter(name, domain, rate + more)
            for name, rate in DRAFTERS.items()
            for domain, more in domains.items()
        ]
        fields = {
            "title": "Nine policies on smollm2-cpu, two cost tables",
            "command": "specsim compare --trace smollm2-cpu --policy dcut@exit28 --batch 1,4,8,16,32,64",
            "created_at": "2025-11-29T20:14:05Z",
            "version": "0.1.0",
            "trace": {
                "name": "smollm2-cpu",
                "kind": "position_indexed",
                "synthetic": False,
                "target": {"name": "SmolLM2-135M-Instruct", "sha256": "9f2c" * 16},
                "drafters": [{"name": name, "law": "point_mass", "max_depth": 15} for name in DRAFTERS],
                "num_requests": 60,
            },
            "tables": [
                {"name": "h20-qwen3-8b", "label": "published", "hardware": "NVIDIA H20", "versions": {"vllm": "0.11"}},
                {"name": "cpu-smollm2", "label": "measured", "hardware": "2 CPU cores"},
            ],
            "engine": {"max_num_seqs": 64, "block_size": 16, "chunked_prefill": True},
            "workload": {"kind": "closed loop", "concurrency": list(batches)},
            "seeds": [0, 1, 2, 3],
            "cells": cells,
            "drafters": drafters,
            "findings": [
                "On h20-qwen3-8b at batch 32, dcut@exit28 is fastest: 2.31x autoregressive (90 % interval "
                "2.27 to 2.35), 14.2 % above fixed_depth:depth=7@exit28, the best fixed choice.",
                "On cpu-smollm2 at batch 64, fixed_depth:depth=15@exit28 is slower than autoregressive: "
                "0.58x (0.57 to 0.59).",
                "dcut:count=code@ucb1:reward=throughput settled on exit28 (70 % of steps).",
            ],
            "notes": ["Draft costs on h20-qwen3-8b are derived from hints, not measured."],
        }
        return StudyResult(**(fields | changes))

    return make
