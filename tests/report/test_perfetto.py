"""The timeline keeps the rules of the trace event format, and shows each step and request where it was."""

import json

import numpy as np
import pytest

from specsim.core import DrafterSpec
from specsim.report.perfetto import PHASE_TRACK, PHASES, STEP_TRACK, timeline, write_timeline
from specsim.telemetry import REQUEST_DTYPE, STEP_DTYPE

DRAFTERS = tuple(DrafterSpec(name, name, "point_mass", "parallel", ("drawn_prob",), 7) for name in ("ngram", "exit"))
REQUIRED = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "C": {"name", "pid", "ts", "args"},
    "b": {"name", "cat", "id", "pid", "ts"},
    "e": {"name", "cat", "id", "pid", "ts"},
    "n": {"name", "cat", "id", "pid", "ts"},
}
"""Keys that the format asks for, by phase."""


def check_format(content):
    """Hold a timeline to the rules of the trace event format; returns its events."""
    content = json.loads(json.dumps(content, allow_nan=False))
    assert content["displayTimeUnit"] == "ms"
    events = content["traceEvents"]
    for event in events:
        assert REQUIRED[event["ph"]] <= event.keys(), event
        assert all(isinstance(event[key], int) for key in ("pid", "tid"))
        assert event.get("dur", 0) >= 0
    timed = [event for event in events if event["ph"] != "M"]
    assert events[: -len(timed)] == [event for event in events if event["ph"] == "M"]
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    check_slices(timed)
    check_pairs(timed)
    for event in timed:
        if event["ph"] == "C":
            assert event["args"]
            assert all(isinstance(value, int) for value in event["args"].values())
    return events


def nanoseconds(microseconds):
    value = round(microseconds * 1000)
    assert value / 1000 == microseconds  # no more than three decimals: nothing is lost on the way into a viewer
    return value


def check_slices(timed):
    """Slices of one track do not overlap."""
    ends = {}
    for event in timed:
        if event["ph"] == "X":
            track = (event["pid"], event["tid"])
            assert nanoseconds(event["ts"]) >= ends.get(track, 0), event
            ends[track] = nanoseconds(event["ts"]) + nanoseconds(event["dur"])


def check_pairs(timed):
    """Every asynchronous slice ends what it began, inner ones first."""
    open_slices = {}
    for event in timed:
        stack = open_slices.setdefault((event["pid"], event.get("cat"), event.get("id")), [])
        if event["ph"] == "b":
            stack.append(event["name"])
        elif event["ph"] == "e":
            assert stack.pop() == event["name"]
    assert not any(open_slices.values())


def run_of_steps(rng, count=50, replicas=2):
    """[count] back-to-back steps a replica, in the order in which they end, and their seconds by phase."""
    parts = []
    for replica in range(replicas):
        steps = np.zeros(count, STEP_DTYPE)
        for name in STEP_DTYPE.names:
            steps[name] = rng.integers(0, 50, count)
        for phase in PHASES:
            steps[f"{phase}_seconds"] = np.where(rng.random(count) < 0.3, 0.0, rng.exponential(1e-3, count))
        seconds = sum(steps[f"{phase}_seconds"] for phase in PHASES)
        steps["started_at"] = 1e5 + np.concatenate([[0.0], np.cumsum(seconds)[:-1]])
        steps["arm"], steps["replica"] = rng.integers(-1, 2, count), replica
        parts.append(steps)
    steps = np.concatenate(parts)
    return steps[np.argsort(steps["started_at"], kind="stable")]


def some_requests():
    requests = np.zeros(3, REQUEST_DTYPE)
    requests["request_id"] = [7, 7, 2**60 + 1]  # a closed loop replays a request before it has finished
    requests["replica"] = [0, 1, 1]
    requests["arrived_at"] = [0.5, 0.25, 0.25]
    requests["admitted_at"] = [0.5, 1.0, 1.0]
    requests["first_token_at"] = [2.0, 1.5, 1.0]
    requests["finished_at"] = [4.0, 3.0, 1.0]
    requests["num_output_tokens"] = [9, 8, 1]
    requests["finish_reason"] = [0, 1, 1]
    return requests


def slices(events, track, process=1):
    return [event for event in events if event["ph"] == "X" and (event["pid"], event["tid"]) == (process, track)]


def test_a_run_of_two_replicas_keeps_the_rules_of_the_format():
    steps = run_of_steps(np.random.default_rng(1))
    events = check_format(timeline(steps, DRAFTERS, some_requests()))
    assert len([event for event in events if event["ph"] == "X" and event["tid"] == STEP_TRACK]) == len(steps)
    assert {event["pid"] for event in events} == {1, 2}


def one_step(**values):
    steps = np.zeros(1, STEP_DTYPE)
    defaults = {"started_at": 2.0, "batch": 4, "arm": 1, "depth": 5}
    for name, value in (defaults | values).items():
        steps[name] = value
    return steps


def test_a_steps_phases_follow_one_another_in_microseconds_and_fill_it():
    seconds = {"switch": 1e-6, "draft": 2e-6, "plan": 3e-6, "verify": 4e-6, "host": 5e-6, "prefill": 6.5e-6}
    steps = one_step(**{f"{phase}_seconds": value for phase, value in seconds.items()})
    events = check_format(timeline(steps, DRAFTERS))
    (step,) = slices(events, STEP_TRACK)
    assert (step["ts"], step["dur"]) == (2_000_000.0, 21.5)
    assert [(e["name"], e["ts"] - 2_000_000, e["dur"]) for e in slices(events, PHASE_TRACK)] == [
        ("switch", 0, 1.0),
        ("draft", 1.0, 2.0),
        ("plan", 3.0, 3.0),
        ("verify", 6.0, 4.0),
        ("host", 10.0, 5.0),
        ("prefill", 15.0, 6.5),
    ]


def test_phases_that_took_no_time_are_not_drawn():
    events = timeline(one_step(verify_seconds=1e-3), DRAFTERS)["traceEvents"]
    assert [event["name"] for event in slices(events, PHASE_TRACK)] == ["verify"]


def test_every_phase_of_the_telemetry_is_drawn():
    assert {f"{phase}_seconds" for phase in PHASES} == {name for name in STEP_DTYPE.names if name.endswith("_seconds")}


def test_a_step_says_its_arm_depth_batch_budget_and_what_came_of_it():
    counts = {"num_drafted": 20, "num_verified": 11, "num_tested": 9, "num_accepted": 6, "num_emitted": 10}
    steps = one_step(**counts, num_tokens_paid=16, prefill_tokens=3, verify_seconds=0.25, host_seconds=0.5)
    (step,) = slices(timeline(steps, DRAFTERS)["traceEvents"], STEP_TRACK)
    assert step["name"] == "exit, depth 5"
    assert step["args"] == {
        "arm": "exit",
        "depth": 5,
        "batch": 4,
        "drafted": 20,
        "verified (budget)": 11,
        "tested": 9,
        "accepted": 6,
        "emitted": 10,
        "tokens paid (bucket)": 16,
        "prefill tokens": 3,
        "seconds": 0.75,
    }


@pytest.mark.parametrize(("changes", "name"), [({"arm": -1}, "plain"), ({"arm": -1, "batch": 0}, "prefill only")])
def test_a_step_without_a_draft_is_named_for_what_it_is(changes, name):
    (step,) = slices(timeline(one_step(**changes), DRAFTERS)["traceEvents"], STEP_TRACK)
    assert step["name"] == name


def test_counters_show_queue_memory_and_acceptance_at_each_steps_start():
    events = timeline(one_step(num_running=3, num_waiting=2, kv_blocks_used=40, num_accepted=6), DRAFTERS)
    counters = {e["name"]: (e["ts"], e["args"]) for e in events["traceEvents"] if e["ph"] == "C"}
    assert counters == {
        "requests": (2_000_000.0, {"running": 3, "waiting": 2}),
        "KV blocks": (2_000_000.0, {"used": 40}),
        "accepted a step": (2_000_000.0, {"drafts": 6}),
    }


def test_a_step_that_runs_into_the_next_is_cut_there_and_still_tells_its_seconds():
    steps = np.concatenate([one_step(started_at=1.0, draft_seconds=0.5, verify_seconds=1.0), one_step(started_at=2.0)])
    events = check_format(timeline(steps[::-1], DRAFTERS))
    first = slices(events, STEP_TRACK)[0]
    assert (first["dur"], first["args"]["seconds"]) == (1_000_000.0, 1.5)
    assert [event["dur"] for event in slices(events, PHASE_TRACK)] == [500_000.0, 500_000.0]


def test_a_request_is_one_slice_from_arrival_to_finish_with_its_phases_inside():
    events = check_format(timeline(np.zeros(0, STEP_DTYPE), DRAFTERS, some_requests()))
    first = [(e["ph"], e["name"], e["ts"]) for e in events if e.get("id") == "0x0"]
    assert first == [
        ("b", "request 7", 0.5e6),
        ("b", "queued", 0.5e6),
        ("e", "queued", 0.5e6),
        ("b", "prefill", 0.5e6),
        ("e", "prefill", 2e6),
        ("b", "decode", 2e6),
        ("e", "decode", 4e6),
        ("e", "request 7", 4e6),
    ]
    begun = [event for event in events if event["ph"] == "b" and event["name"].startswith("request")]
    assert [event["pid"] for event in begun] == [2, 2, 1]
    assert [event["args"]["finish_reason"] for event in begun] == ["length", "length", "stop"]
    assert begun[-1]["args"]["num_output_tokens"] == 9
    assert f"request {2**60 + 1}" in {event["name"] for event in begun}


def test_of_a_request_that_is_known_to_have_arrived_only_the_arrival_is_shown():
    requests = some_requests()
    for column in ("admitted_at", "first_token_at", "finished_at"):
        requests[column] = np.nan
    requests["arrived_at"][2] = np.nan
    events = check_format(timeline(one_step(), DRAFTERS, requests))
    arrivals = [(e["name"], e["ts"]) for e in events if e.get("cat") == "request"]
    assert arrivals == [("request 7 arrives", 0.25e6), ("request 7 arrives", 0.5e6)]


def test_a_replica_that_ran_no_step_still_has_a_name():
    events = timeline(one_step(), DRAFTERS, some_requests())["traceEvents"]
    assert {e["pid"] for e in events if e["name"] == "process_name"} == {1, 2}


def test_what_no_viewer_can_read_is_not_written(tmp_path):
    steps = one_step()
    requests = some_requests()
    steps["started_at"] = 0.0
    content = timeline(steps, DRAFTERS, requests)
    assert "NaN" not in json.dumps(content)
    steps["verify_seconds"] = np.nan
    with pytest.raises(ValueError, match="finite"):
        write_timeline(tmp_path / "timeline.json", steps, DRAFTERS)
    assert list(tmp_path.iterdir()) == []


def test_processes_and_tracks_have_names_and_an_order():
    events = timeline(run_of_steps(np.random.default_rng(2)), DRAFTERS)["traceEvents"]
    named = {(e["name"], e["pid"], e["tid"]): e["args"] for e in events if e["ph"] == "M"}
    assert named["process_name", 2, 0] == {"name": "replica 1"}
    assert named["thread_name", 1, STEP_TRACK] == {"name": "steps"}
    assert named["thread_name", 1, PHASE_TRACK] == {"name": "phases"}
    assert (
        named["thread_sort_index", 1, STEP_TRACK]["sort_index"]
        < named["thread_sort_index", 1, PHASE_TRACK]["sort_index"]
    )


def test_the_file_holds_the_timeline_and_nothing_is_left_beside_it(tmp_path):
    steps = run_of_steps(np.random.default_rng(3), count=5)
    path = tmp_path / "timeline.json"
    path.write_text("old")
    count = write_timeline(path, steps, DRAFTERS, some_requests())
    content = json.loads(path.read_text())
    assert content == timeline(steps, DRAFTERS, some_requests())
    assert count == len(content["traceEvents"])
    assert list(tmp_path.iterdir()) == [path]
