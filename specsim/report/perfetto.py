"""A run's steps and requests as a timeline that Perfetto and Chrome's tracing page open.

Every replica is a process with two tracks, its steps and the phases inside them, and counters; every request is an
asynchronous slice. Instants are microseconds with three decimals: nanoseconds, so that slices nest exactly.

Source: Trace Event Format (phases M, X, C, b, e, n), and Perfetto's reading of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specsim.core import DrafterSpec
from specsim.telemetry import FINISH_REASONS

PHASES = ("switch", "draft", "plan", "verify", "host", "prefill")
"""The order in which a step's phases are drawn; its record has their seconds, not their instants."""

STEP_TRACK = 1
PHASE_TRACK = 2
TRACKS = {STEP_TRACK: "steps", PHASE_TRACK: "phases"}

STEP_ARGUMENTS = {
    "depth": "depth",
    "batch": "batch",
    "num_drafted": "drafted",
    "num_verified": "verified (budget)",
    "num_tested": "tested",
    "num_accepted": "accepted",
    "num_emitted": "emitted",
    "num_tokens_paid": "tokens paid (bucket)",
    "prefill_tokens": "prefill tokens",
}
"""Columns shown with a step, and what they are called there."""

REQUEST_PHASES = (
    ("queued", "arrived_at", "admitted_at"),
    ("prefill", "admitted_at", "first_token_at"),
    ("decode", "first_token_at", "finished_at"),
)

Event = dict[str, Any]


def timeline(steps: np.ndarray, drafters: Sequence[DrafterSpec], requests: np.ndarray | None = None) -> dict[str, Any]:
    """The run in Chrome's trace event format.

    steps       engine steps, records of telemetry.STEP_DTYPE, in any order
    drafters    the arms, index = arm
    requests    finished requests, records of telemetry.REQUEST_DTYPE; instants that are unknown are NaN (None: none)
    returns     a JSON object whose `traceEvents` are in order of time, metadata first
    Raises      ValueError when an instant or a duration of a step is not finite
    """
    names = [*(spec.name for spec in drafters), "plain"]  # arm -1 is the last
    replicas = {int(replica) for replica in np.unique(steps["replica"])}
    events: list[Event] = []
    for replica in sorted(replicas):
        events += _steps(steps[steps["replica"] == replica], _process(replica), names)
    if requests is not None:
        replicas |= {int(replica) for replica in np.unique(requests["replica"])}
        for number, row in enumerate(requests):
            events += _request(row, number)
    events.sort(key=lambda event: event["ts"])  # stable: events of one instant keep their order
    metadata = [event for replica in sorted(replicas) for event in _names(replica)]
    for event in events:
        event["ts"] /= 1000
        if "dur" in event:
            event["dur"] /= 1000
    return {"traceEvents": metadata + events, "displayTimeUnit": "ms"}


def write_timeline(
    path: str | Path, steps: np.ndarray, drafters: Sequence[DrafterSpec], requests: np.ndarray | None = None
) -> int:
    """Write the run's timeline to a JSON file, which is there in full or not at all.

    path        the file
    returns     how many events it holds, metadata included; see `timeline` for the other arguments
    """
    path = Path(path)
    content = timeline(steps, drafters, requests)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")
    os.replace(partial, path)
    return len(content["traceEvents"])


def _process(replica: int) -> int:
    return replica + 1  # process 0 is the idle one in trace viewers


def _names(replica: int) -> Iterator[Event]:
    """What the process of a replica and its tracks are called, and in which order they stand."""
    process = _process(replica)

    def metadata(what: str, track: int, **arguments: Any) -> Event:
        return {"ph": "M", "name": what, "pid": process, "tid": track, "ts": 0, "args": arguments}

    yield metadata("process_name", 0, name=f"replica {replica}")
    yield metadata("process_sort_index", 0, sort_index=replica)
    for track, name in TRACKS.items():
        yield metadata("thread_name", track, name=name)
        yield metadata("thread_sort_index", track, sort_index=track)


def _steps(steps: np.ndarray, process: int, names: list[str]) -> Iterator[Event]:
    """Slices and counters of one replica's steps."""
    steps = steps[np.argsort(steps["started_at"], kind="stable")]
    edges = _edges(steps)
    for row, edge in zip(steps, edges.tolist(), strict=True):
        begin, end = edge[0], edge[-1]
        yield _slice(process, STEP_TRACK, _title(row, names), begin, end, _arguments(row, names))
        for phase, opened, closed in zip(PHASES, edge[:-1], edge[1:], strict=True):
            if closed > opened:
                yield _slice(process, PHASE_TRACK, phase, opened, closed, {})
        yield _counter(process, "requests", begin, running=row["num_running"], waiting=row["num_waiting"])
        yield _counter(process, "KV blocks", begin, used=row["kv_blocks_used"])
        yield _counter(process, "accepted a step", begin, drafts=row["num_accepted"])


def _edges(steps: np.ndarray) -> np.ndarray:
    """[steps, phases + 1] int64 nanoseconds at which each step's phases begin and end, the step's end last.

    No step runs into the next: slices of one track must not overlap, and sums of floats may by a nanosecond.
    """
    seconds = np.stack([steps["started_at"], *(steps[f"{phase}_seconds"] for phase in PHASES)], axis=1)
    if not np.isfinite(seconds).all():
        raise ValueError(f"step {int(np.argmin(np.isfinite(seconds).all(axis=1)))}: its seconds must be finite")
    edges: np.ndarray = np.rint(np.cumsum(seconds, axis=1) * 1e9).astype(np.int64)
    edges[:-1] = np.minimum(edges[:-1], edges[1:, :1])
    return edges


def _title(row: np.void, names: list[str]) -> str:
    if row["batch"] == 0:
        return "prefill only"
    return names[row["arm"]] if row["arm"] < 0 else f"{names[row['arm']]}, depth {row['depth']}"


def _arguments(row: np.void, names: list[str]) -> dict[str, Any]:
    shown = {name: row[column].item() for column, name in STEP_ARGUMENTS.items()}
    seconds = sum(row[f"{phase}_seconds"].item() for phase in PHASES)
    return {"arm": names[row["arm"]], **shown, "seconds": seconds}


def _slice(process: int, track: int, name: str, begin: int, end: int, arguments: dict[str, Any]) -> Event:
    event = {"ph": "X", "name": name, "cat": TRACKS[track], "pid": process, "tid": track}
    return event | {"ts": begin, "dur": end - begin, "args": arguments}


def _counter(process: int, name: str, at: int, **values: np.integer) -> Event:
    counts = {series: value.item() for series, value in values.items()}
    return {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": at, "args": counts}


def _request(row: np.void, number: int) -> Iterator[Event]:
    """One request's slice and those inside it, as far as its instants are known; an arrival alone is an instant."""

    def event(kind: str, name: str, at: str, **arguments: Any) -> Event:
        where = {"ph": kind, "name": name, "cat": "request", "id": hex(number), "pid": _process(int(row["replica"]))}
        return where | {"tid": 0, "ts": round(row[at].item() * 1e9), "args": arguments}

    def known(*instants: str) -> bool:
        return bool(np.isfinite([row[at] for at in instants]).all())

    title = f"request {row['request_id']}"
    if known("arrived_at", "finished_at"):
        counts = {name: row[name].item() for name in row.dtype.names or () if name.startswith("num_")}
        yield event("b", title, "arrived_at", **counts, finish_reason=FINISH_REASONS[row["finish_reason"]])
        for name, begin, end in REQUEST_PHASES:
            if known(begin, end):
                yield event("b", name, begin)
                yield event("e", name, end)
        yield event("e", title, "finished_at")
    elif known("arrived_at"):
        yield event("n", f"{title} arrives", "arrived_at")
