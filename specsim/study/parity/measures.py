"""What a live run measured beside what the cost table or a simulation says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specsim import metrics
from specsim.sim.rerun import RerunStep
from specsim.sim.rerun_predict import Prediction
from specsim.sim.rerun_run import PHASES, LiveRun

WITH_PROMPTS, PROMPTS_ALONE = "with prompts", "prompts alone"


@dataclass(frozen=True, slots=True)
class Pair:
    """A measured value and the predicted one.

    name       of the value, `batch 3-4` for instance
    unit       of both
    measured   in the live run
    predicted  by the cost table, or by the simulation
    count      steps or requests that it is the mean of (0: it is no mean)
    """

    name: str
    unit: str
    measured: float
    predicted: float
    count: int = 0

    @property
    def error(self) -> float:
        """predicted / measured - 1; NaN where either is unknown."""
        return self.predicted / self.measured - 1.0 if self.measured else math.nan


def bucket(batch: int) -> str:
    """Batch sizes from one power of two to the next, as `5-8`."""
    high = 1 << (batch - 1).bit_length()
    low = high // 2 + 1
    return str(high) if low >= high else f"{low}-{high}"


def step_seconds(steps: Sequence[RerunStep], prompts: np.ndarray) -> list[Pair]:
    """Mean seconds of a step by batch size, prompts apart, and of all steps.

    steps    as taken again
    prompts  [steps] int64, prompt tokens in each
    """
    groups: dict[str, list[RerunStep]] = {}
    for step, tokens in zip(steps, prompts.tolist(), strict=True):
        name = f"batch {bucket(step.batch)}" if step.batch else PROMPTS_ALONE
        groups.setdefault(WITH_PROMPTS if tokens and step.batch else name, []).append(step)
    last = (WITH_PROMPTS, PROMPTS_ALONE)
    names = sorted((name for name in groups if name not in last), key=lambda name: groups[name][0].batch)
    pairs = [_seconds(name, groups[name]) for name in (*names, *(name for name in last if name in groups))]
    return [*pairs, _seconds("all steps", list(steps))] if pairs else []


def phase_seconds(steps: Sequence[RerunStep]) -> list[Pair]:
    """Mean seconds of each phase a step; phases that take nothing on either side are left out."""
    pairs = []
    for phase in PHASES:
        measured = np.array([getattr(step.seconds, phase) for step in steps])
        predicted = np.array([getattr(step.table_seconds, phase) for step in steps])
        if len(steps) and (measured.any() or predicted.any()):
            pairs.append(Pair(phase, "s", float(measured.mean()), float(predicted.mean()), len(steps)))
    return pairs


def _seconds(name: str, steps: list[RerunStep]) -> Pair:
    measured = float(np.mean([step.seconds.total for step in steps]))
    predicted = float(np.mean([step.table_seconds.total for step in steps]))
    return Pair(name, "s", measured, predicted, len(steps))


def outcomes(run: LiveRun, predicted: Prediction) -> list[Pair]:
    """Steps, throughput, acceptance and latencies of the run and of its simulation."""
    live, steps = _requests(run), run.steps
    found = predicted.requests
    ends = float(steps["started_at"][-1]) + sum(float(steps[f"{phase}_seconds"][-1]) for phase in PHASES)
    began = float(live["arrived_at"].min())
    tokens = int(live["tokens"].sum())
    simulated = float(found["finished_at"].max()) - began
    finished = live["finished"]
    ids = live["request_id"][finished]
    same = np.isin(found["request_id"], ids)
    return [
        Pair("engine steps", "", len(steps), len(predicted.steps)),
        Pair("duration", "s", ends - began, simulated),
        Pair("throughput", "tokens/s", metrics.token_throughput(tokens, ends - began),
             metrics.token_throughput(int(found["num_output_tokens"].sum()), simulated)),
        Pair("tokens a request and step", "", _yield(steps), _yield(predicted.steps)),
        Pair("TTFT, mean", "s", _mean(metrics.ttft(live["arrived_at"], live["first"])[finished]),
             _mean(metrics.ttft(found["arrived_at"], found["first_token_at"])[same]), len(ids)),
        Pair("TPOT, mean", "s", _mean(metrics.tpot(live["first"], live["ended"], live["tokens"])[finished]),
             _mean(metrics.tpot(found["first_token_at"], found["finished_at"], found["num_output_tokens"])[same]),
             len(ids)),
    ]  # fmt: skip


def _requests(run: LiveRun) -> dict[str, np.ndarray]:
    """Columns of the requests that got a token; instants in seconds."""
    told = [one for one in run.facts.submissions if one.num_output_tokens]
    return {
        "request_id": np.array([one.request_id for one in told], np.int64),
        "arrived_at": np.array([one.arrived_at for one in told]),
        "first": np.array([math.nan if one.first_token_at is None else one.first_token_at for one in told]),
        "ended": np.array([math.nan if one.ended_at is None else one.ended_at for one in told]),
        "tokens": np.array([one.num_output_tokens for one in told], np.int64),
        "finished": np.array([one.end == "finished" for one in told], bool),
    }


def _yield(steps: np.ndarray) -> float:
    batch = int(steps["batch"].sum())
    return int(steps["num_emitted"].sum()) / batch if batch else math.nan


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan
