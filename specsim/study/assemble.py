"""From the records of all runs to the cells of a study: means over seeds, and differences paired by seed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specsim import metrics
from specsim.study.bootstrap import paired_interval
from specsim.study.plan import CLAIRVOYANT, Plan, Policy
from specsim.study.record import Record
from specsim.study.result import Cell
from specsim.study.task import ITL_FRACTIONS


@dataclass(frozen=True)
class Contender:
    """One policy at one table and load: its runs, in the order of the seeds."""

    policy: Policy
    records: tuple[Record, ...]

    @property
    def merits(self) -> np.ndarray:
        """[seeds] float64, what speedups compare.

        Closed loop: steady throughput, tokens/s. Open loop: 1 / mean end-to-end seconds, for there throughput is
        the arrivals' whatever the policy. NaN where no token took any time.
        """
        if self.records[0].rate:
            return np.array([1.0 / (record.summary.e2e_mean or math.nan) for record in self.records])
        return np.array([record.summary.steady_token_throughput for record in self.records])


@dataclass(frozen=True)
class References:
    """What the policies of one table and load are compared with.

    autoregressive  always there
    best_fixed      the fixed policy with the highest mean merit (None: only autoregressive took part)
    bound           the clairvoyant run with the highest mean merit (None: there is none)
    same_budget     by budget policy, the best fixed drafter under it
    """

    autoregressive: Contender
    best_fixed: Contender | None
    bound: Contender | None
    same_budget: dict[str, Contender]


def assemble(plan: Plan, records: Sequence[Record]) -> list[Cell]:
    """The cells of a study, in the order of tables, loads and policies.

    plan        what was run
    records     one a task, in any order
    """
    by_place = {(r.table, r.batch, r.rate, r.policy, r.seed): r for r in records}
    loads = [(batch, 0.0) for batch in plan.study.batches] + [(0, rate) for rate in plan.study.rates]
    cells = []
    for table in plan.tables:
        for batch, rate in loads:
            contenders = [
                Contender(
                    policy,
                    tuple(by_place[table.name, batch, rate, policy.label, seed] for seed in plan.study.seeds),
                )
                for policy in plan.policies
            ]
            cells += _place(contenders)
    return cells


def _place(contenders: list[Contender]) -> list[Cell]:
    """All cells of one table and load; the candidates for the bound become one."""
    references = _references(contenders)
    cells = [_cell(contender, references) for contender in contenders if not contender.policy.bound]
    if references.bound is not None:
        cells.append(_bound_cell(references.bound, references))
    return cells


def _references(contenders: list[Contender]) -> References:
    fixed = [c for c in contenders if c.policy.fixed and not c.records[0].lossy_reason]
    same_budget: dict[str, Contender] = {}
    for contender in contenders:
        if contender.policy.num_arms == 1 and not contender.policy.bound:
            budget = str(contender.policy.config.budget)
            same_budget[budget] = _fastest([contender, same_budget.get(budget, contender)])
    bounds = [c for c in contenders if c.policy.bound]
    return References(
        autoregressive=contenders[0],
        best_fixed=_fastest(fixed) if len(fixed) > 1 else None,
        bound=_fastest(bounds) if bounds else None,
        same_budget=same_budget,
    )


def _fastest(contenders: list[Contender]) -> Contender:
    return max(contenders, key=lambda contender: float(contender.merits.mean()))


def _bound_cell(bound: Contender, references: References) -> Cell:
    cell = _cell(bound, references)
    reached = f"the bound is the best of several clairvoyant runs, here {bound.policy.config}"
    return dataclasses.replace(cell, policy=CLAIRVOYANT, notes=(*cell.notes, reached))


def _cell(contender: Contender, references: References) -> Cell:
    first, policy = contender.records[0], contender.policy
    speedups = contender.merits / references.autoregressive.merits
    interval = _interval(speedups)
    is_reference = contender is references.autoregressive
    counts = np.sum([record.counts for record in contender.records], axis=0)
    drafted = sum(record.drafted_request_steps for record in contender.records)
    best, bound = references.best_fixed, references.bound
    return Cell(
        table=first.table,
        batch=first.batch,
        rate=first.rate,
        policy=policy.label,
        values=_values(contender, references, speedups),
        speedup_interval=interval,
        difference_to_best_fixed=None if best is None else _difference(contender, best),
        share_of_clairvoyant=None if bound is None else float((contender.merits / bound.merits).mean()),
        slower_than_autoregressive=interval[1] < 1.0,
        not_distinguishable=not is_reference and interval[0] <= 1.0 <= interval[1],
        acceptance_by_position=metrics.survival_by_position(counts).tolist(),
        verified_by_position=metrics.verified_by_position(counts, drafted).tolist(),
        arm_share=_mean_shares(contender.records),
        lossy_reason=first.lossy_reason,
        clairvoyant=first.clairvoyant,
        notes=tuple(dict.fromkeys(note for record in contender.records for note in record.notes)),
        latency=_latency(contender.records),
        series=_series(first, best),
        best_fixed=None if best is None else best.policy.label,
        fixed=policy.fixed,
    )


def _values(contender: Contender, references: References, speedups: np.ndarray) -> dict[str, float]:
    """Mean over the seeds of every metric, and of every comparison made within a seed."""
    own = contender.merits
    values = {
        field.name: _mean([getattr(record.summary, field.name) for record in contender.records])
        for field in dataclasses.fields(metrics.Summary)
    }
    values["speedup"] = float(speedups.mean())
    if references.best_fixed is not None:
        values["regret_to_best_fixed"] = _regret(own, references.best_fixed)
    if references.bound is not None:
        values["regret_to_clairvoyant"] = _regret(own, references.bound)
    best_arm = references.same_budget.get(str(contender.policy.config.budget))
    if best_arm is not None:
        values["regret_to_best_arm"] = _regret(own, best_arm)
    return values


def _regret(merits: np.ndarray, reference: Contender) -> float:
    pairs = zip(merits.tolist(), reference.merits.tolist(), strict=True)
    return float(np.mean([metrics.regret(own, best) for own, best in pairs]))


def _difference(contender: Contender, best: Contender) -> tuple[float, float, float]:
    differences = contender.merits / best.merits - 1.0
    return (float(differences.mean()), *_interval(differences))


def _interval(values: np.ndarray) -> tuple[float, float]:
    """The paired interval of one value a seed; one seed has none, and so no verdict either."""
    return paired_interval(values) if len(values) > 1 else (math.nan, math.nan)


def _mean(values: list[float]) -> float:
    """Mean of the known values; unknown when none is known."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _mean_shares(records: Sequence[Record]) -> dict[str, float]:
    return {name: _mean([record.arm_share[name] for record in records]) for name in records[0].arm_share}


def _latency(records: Sequence[Record]) -> dict[str, list[float]]:
    columns = zip(*(record.itl_seconds for record in records), strict=True)
    return {"fraction": list(ITL_FRACTIONS), "itl_seconds": [_mean(list(column)) for column in columns]}


def _series(first: Record, best: Contender | None) -> dict[str, list[float]]:
    """The first seed's series; in a closed loop with the tokens it is behind the best fixed policy on that seed."""
    series = dict(first.series)
    if best is None or not series or first.rate:
        return series
    reference = best.records[0]
    pace = metrics.token_throughput(reference.num_decoded, reference.summary.duration_seconds)
    elapsed, tokens = np.array(series["started_at"]), np.array(series["cumulative_tokens"])
    return series | {"regret_tokens": metrics.cumulative_regret(elapsed, tokens, pace).tolist()}
