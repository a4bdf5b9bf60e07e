"""Runs every policy in every environment and sums up what was lost."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specsim import __version__
from specsim.policies.build import build_arms
from specsim.policies.config import PolicyConfig
from specsim.study.bootstrap import paired_interval
from specsim.study.executors import executor_for
from specsim.study.regret.bernoulli import BernoulliArms
from specsim.study.regret.bounds import lines
from specsim.study.regret.environment import Environment
from specsim.study.regret.findings import findings
from specsim.study.regret.play import Play, checkpoints, play
from specsim.study.regret.result import PolicyRegret, RegretResult, Surroundings

DEFAULT_POLICIES = (
    "epsilon_greedy",
    "ucb1",
    "kl_ucb",
    "thompson_beta",
    "thompson_gaussian:reward=accepted_fraction",
    "sliding_window_ucb",
    "discounted_ucb",
    "discounted_thompson_beta",
    "discounted_thompson_gaussian:reward=accepted_fraction",
    "exp3s",
    "change_point",
    "hedge",
)

NUM_SEEDS = 200

MOST_CHANGES = 100
"""Arms that change more often than this drift, and no line is drawn at every change."""


@dataclass(frozen=True)
class Task:
    """One policy in one environment."""

    policy: PolicyConfig
    environment: Environment
    seeds: tuple[int, ...]


def study_regret(
    environments: Sequence[Environment],
    policies: Sequence[PolicyConfig],
    seeds: Sequence[int],
    *,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
    title: str = "Regret of drafter policies",
    command: str = "",
    notes: Sequence[str] = (),
) -> RegretResult:
    """Play every policy in every environment on the same luck.

    environments    no two of one name
    policies        drafter policies
    seeds           one run a seed
    jobs            processes
    progress        told (done, all) after each policy and environment
    notes           what a reader must know
    Raises          InputError when a policy or an option is unknown
    """
    for environment in environments:
        for policy in policies:
            build_arms(policy, len(environment.arms))  # refuse before anything is played
    tasks = [Task(policy, environment, tuple(seeds)) for environment in environments for policy in policies]
    done: dict[tuple[str, str], PolicyRegret] = {}
    for found in executor_for(jobs, len(tasks)).map(run, tasks):
        done[found.environment, found.policy] = found
        if progress is not None:
            progress(len(done), len(tasks))
    surroundings = [describe(environment) for environment in environments]
    regrets = [done[task.environment.name, str(task.policy)] for task in tasks]
    return RegretResult(
        title=title,
        command=command,
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        version=__version__,
        seeds=list(seeds),
        environments=surroundings,
        regrets=regrets,
        findings=findings(surroundings, regrets),
        notes=[*notes, *_full_information(regrets)],
    )


def _full_information(regrets: list[PolicyRegret]) -> list[str]:
    """A word on policies that are told more than the others."""
    told = list(dict.fromkeys(found.policy for found in regrets if found.full_information))
    if not told:
        return []
    return [f"{', '.join(told)}: learns from every arm at every step; the others only from the arm they pulled"]


def run(task: Task) -> PolicyRegret:
    """Play one policy in one environment."""
    policy = build_arms(task.policy, len(task.environment.arms))
    found = summarise(str(task.policy), task.environment, play(policy, task.environment, list(task.seeds)))
    return replace(found, full_information=getattr(policy, "full_information", False))


def summarise(policy: str, environment: Environment, played: Play) -> PolicyRegret:
    """Means, spreads and shares of what S runs lost."""
    acceptance = environment.truth.acceptance
    oracle, fixed = float(acceptance.max(axis=1).sum()), float(acceptance.sum(axis=0).max())
    regret, seconds = played.regret[-1], played.seconds_regret[-1]
    static, collected = fixed - played.collected, float(played.collected.mean())
    low, high = np.quantile(regret, (0.05, 0.95))
    shares = played.pulls.sum(axis=0) / played.pulls.sum()
    return PolicyRegret(
        environment=environment.name,
        policy=policy,
        regret=float(regret.mean()),
        regret_sd=float(regret.std(ddof=1)) if len(regret) > 1 else 0.0,
        regret_interval=paired_interval(regret),
        regret_band=(float(low), float(high)),
        static_regret=float(static.mean()),
        share_of_oracle=collected / oracle if oracle else 1.0,
        share_of_best_fixed=collected / fixed if fixed else 1.0,
        seconds_regret=float(seconds.mean()),
        seconds_interval=paired_interval(seconds),
        switches=float(played.switches.mean()),
        arm_share=dict(zip(environment.arms, shares.tolist(), strict=True)),
        curve=_curve(played),
        by_seed={
            "regret": regret.tolist(),
            "static_regret": static.tolist(),
            "seconds_regret": seconds.tolist(),
            "switches": played.switches.astype(np.float64).tolist(),
        },
    )


def describe(environment: Environment) -> Surroundings:
    """What a reader must know of an environment."""
    acceptance = environment.truth.acceptance
    num_steps, changes = len(acceptance), environment.truth.changes
    best = int(acceptance.sum(axis=0).argmax())
    return Surroundings(
        name=environment.name,
        description=environment.description,
        arms=environment.arms,
        num_steps=num_steps,
        best_fixed=environment.arms[best],
        fixed_regret=float((acceptance.max(axis=1) - acceptance[:, best]).sum()),
        changes=tuple(changes) if len(changes) <= MOST_CHANGES else (),
        means=tuple(acceptance[0].tolist()),
        lines=lines(acceptance, checkpoints(num_steps), isinstance(environment, BernoulliArms)),
    )


def _curve(played: Play) -> dict[str, list[float]]:
    curve: dict[str, Any] = {"step": played.checkpoints.astype(np.float64)}
    for prefix, values in (("", played.regret), ("seconds_", played.seconds_regret)):
        curve[f"{prefix}low"], curve[f"{prefix}high"] = np.quantile(values, (0.05, 0.95), axis=1)
        curve[f"{prefix}mean"] = values.mean(axis=1)
    return {name: [float(value) for value in values] for name, values in curve.items()}
