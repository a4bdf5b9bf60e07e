"""What a live session leaves behind, measured by the code that measures simulated runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specsim import metrics
from specsim.live.engine import Engine
from specsim.live.prompts import Prompt
from specsim.live.requests import LiveRequest
from specsim.live.session_compare import Part, Rival
from specsim.live.session_drive import Drive, last_commit
from specsim.metrics import Summary
from specsim.telemetry import Run


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an output first differs from that under another policy.

    request_id   of the first request that differs
    position     of its first token that differs, from 0
    num_requests requests that differ
    """

    request_id: int
    position: int
    num_requests: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same requests under another policy, in the same process afterwards.

    part         what that policy leaves out of the session's own
    label        what tables call it
    run          what it left behind
    summary      its metrics
    speedup      token throughput of the session over that of this run
    compared     requests whose outputs were compared: none where tokens are drawn, whose luck differs
    difference   where the session's outputs differ from these (None: nowhere, or none was compared)
    """

    part: Part
    label: str
    run: Run
    summary: Summary
    speedup: float
    compared: int
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class SessionResult:
    """A session that is over.

    run          what it left behind
    summary      its metrics
    prompts      the prompts, by request_id
    requests     what was submitted, by request_id
    comparisons  the same requests under other policies, in the order of their runs
    left_out     policies that were to be compared, for which no time was left
    interrupted  whether it was stopped before its end
    replayed     `acceptance replayed from TRACE`, where tokens are fillers (empty: outputs are the target's own)
    """

    run: Run
    summary: Summary
    prompts: tuple[Prompt, ...]
    requests: tuple[LiveRequest, ...]
    comparisons: tuple[Comparison, ...]
    interrupted: bool
    replayed: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def plain(self) -> Comparison | None:
        """Plain decoding of the same requests (None: not asked for, or interrupted)."""
        return next((other for other in self.comparisons if other.part == "plain"), None)

    @property
    def failed(self) -> tuple[LiveRequest, ...]:
        """Requests that have an error."""
        return tuple(request for request in self.requests if request.status == "failed")

    @property
    def arm_shares(self) -> dict[str, float]:
        """Share of decode steps by drafter, `plain` for steps without one; only what occurred."""
        names = [*(drafter.name for drafter in self.run.drafters), "plain"]
        shares = metrics.arm_share(self.run.arm_steps).tolist()
        return {name: share for name, share in zip(names, shares, strict=True) if share > 0}

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Seconds of all steps by phase."""
        phases = ("draft", "plan", "verify", "host", "switch", "prefill")
        return {name: getattr(self.run.totals, f"{name}_seconds") for name in phases}


def finished_run(drive: Drive, seed: int, notes: Sequence[str] = ()) -> Run:
    """The record of a run that is over.

    notes   what has to be known of its numbers, beside what acceptor and cost table say

    Instants are the engine's clock's; `duration` and `steady_at` count from the first arrival.
    """
    engine = drive.engine
    tally, totals = engine.tally, engine.tally.finish()
    totals.num_preemptions = engine.scheduler.num_preemptions
    first = min((request.arrived_at for request in drive.requests), default=0.0)
    duration = max(last_commit(engine) - first, 0.0)
    emitted = totals.num_emitted + totals.num_first
    steady_at, steady_tokens = duration, emitted
    if drive.load.arrivals is None and drive.steady is not None:
        steady_at, steady_tokens = drive.steady[0] - first, drive.steady[1]
    assert tally.steps is not None
    return Run(
        label=engine.controller.label,
        drafters=tuple(engine.controller.drafters),
        seed=seed,
        concurrency=min(drive.load.concurrency, engine.config.max_num_seqs),
        duration=duration,
        steady_at=steady_at,
        steady_tokens=steady_tokens,
        totals=replace(totals),
        counts=tally.counts,
        drafted=tally.drafted,
        tested=tally.tested,
        arm_steps=np.array(tally.arm_steps, np.int64),
        arm_seconds=np.array(tally.arm_seconds),
        arm_tokens=np.array(tally.arm_tokens, np.int64),
        itl=tally.itl,
        requests=tally.requests.table(),
        steps=tally.steps.table(),
        num_kv_blocks=engine.setup.pool.num_blocks,
        num_replicas=1,
        lossy_reason=engine.controller.lossy_reason,
        notes=(*_notes(engine), *notes),
    )


def _notes(engine: Engine) -> tuple[str, ...]:
    marks = [engine.acceptor.label] if engine.acceptor.label else []
    return (*marks, *sorted(engine.cost.notes))


def compare_outputs(ours: Sequence[LiveRequest], others: Sequence[LiveRequest]) -> tuple[int, Difference | None]:
    """Token by token, whether outputs are the same under two policies.

    ours, others  the same requests of both runs, in order
    returns       requests that finished in both, and where they first differ
    """
    pairs = [(a, b) for a, b in zip(ours, others, strict=True) if a.status == b.status == "finished"]
    apart = [(a, b) for a, b in pairs if a.token_ids != b.token_ids]
    if not apart:
        return len(pairs), None
    a, b = apart[0]
    same = [x == y for x, y in zip(a.token_ids, b.token_ids, strict=False)]
    position = same.index(False) if False in same else len(same)
    return len(pairs), Difference(a.request_id, position, len(apart))


def comparison(rival: Rival, session: Drive, other: Drive, summary: Summary, seed: int) -> Comparison:
    """Put a session beside the same requests under another policy.

    rival    whose run it is
    session  the session's drive
    other    the rival's
    summary  the session's metrics
    """
    run = finished_run(other, seed)
    own = metrics.summarize(run)
    greedy = session.params.temperature == 0
    compared, difference = compare_outputs(session.requests, other.requests) if greedy else (0, None)
    speedup = metrics.speedup(summary.token_throughput, own.token_throughput)
    return Comparison(rival.part, rival.label, run, own, speedup, compared, difference)
