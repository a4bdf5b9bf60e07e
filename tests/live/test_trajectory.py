"""What a recorder leaves behind: exactly what happened, and of a killed run all that had ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.live.sampling import SamplingParams
from specsim.live.trajectory import TrajectoryRecorder
from specsim.serving.run_file import STEPS_JOURNAL, read_run_file
from specsim.sim.rerun_run import LiveRun
from specsim.study.parity.recover import recover
from specsim.telemetry import STEP_DTYPE
from specsim.trace import Trace
from specsim.trace.journal import JournalledRequests
from tests.live.engine.engines import build_engine
from tests.live.parity_runs import DEPTH, DRAFTERS, LIMITS, TABLE, record

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def target(make_target):
    """A model whose outputs end early here and there."""
    return make_target("float64", eos_token_id=[16])


class Watcher:
    """Keeps what the engine says of each step, apart from the recorder."""

    def __init__(self, engine):
        self.engine, self.rows, self.blocks = engine, [], {}
        engine.observers.append(self)

    def on_step(self, row, step, emission):
        self.rows.append(row.copy())
        if step.seen is None:
            return
        slots = self.engine.scheduler.slots
        for i, slot in enumerate(step.slots.tolist()):
            position = int(slots.emitted[slot] - emission.num_emitted[i])
            key = (slots.sequences[slot], position, step.order.arm)
            count = int(step.seen.num_drafts[i])
            scores = {name: values[i, :count].tolist() for name, values in step.scores.items()}
            self.blocks[key] = (
                count,
                int(emission.num_accepted[i]),
                int(step.verified[i]),
                step.tokens[i, :count].tolist(),
                scores,
            )

    def on_request(self, request):
        pass


def watched(target, spec, folder):
    found = []
    recorded = record(target, spec, folder, mutate=lambda engine: found.append(Watcher(engine)))
    return recorded, found[0]


def test_every_visited_block_comes_back_with_the_bits_that_decided(target, tmp_path):
    recorded, watcher = watched(target, "dcut@round_robin", tmp_path / "run")
    trace = Trace.open(tmp_path / "run")
    assert trace.kind == "trajectory"
    assert trace.validate().num_rows == len(watcher.blocks) > 15
    found = {}
    for request in range(len(trace)):
        sequence = int(trace.requests.request_id[request])
        tokens = recorded.requests[sequence].token_ids
        for arm, spec in enumerate(trace.drafters):
            positions, blocks = trace.visits(request, arm)
            drafted = trace.column(request, arm, "draft_token_ids") if len(positions) else None
            for row, position in enumerate(positions.tolist()):
                count, accepted = int(blocks.num_drafts[row]), int(blocks.num_accepted[row])
                scores = {name: blocks.scores[name][row, :count].tolist() for name in spec.scores}
                seen = int(blocks.num_verified[row])
                verified = watcher.blocks[sequence, position, arm][2]
                assert seen == min(verified, len(tokens) - position)  # what lies behind the output nobody judged
                found[sequence, position, arm] = (count, accepted, verified, drafted[row, :count].tolist(), scores)
                assert drafted[row, :accepted].tolist() == tokens[position : position + accepted]
    assert found == watcher.blocks


def test_instants_and_seconds_come_back_exactly(target, tmp_path):
    recorded, watcher = watched(target, "dcut@ucb1", tmp_path / "run")
    steps = LiveRun.open(tmp_path / "run").steps
    assert steps.tobytes() == np.array(watcher.rows, steps.dtype).tobytes()
    assert steps.tobytes() == recorded.engine.tally.steps.table().tobytes()
    for one, request in zip(read_run_file(tmp_path / "run").submissions, recorded.requests, strict=True):
        assert one.arrived_at == request.arrived_at
        assert one.first_token_at == request.first_token_at
        assert one.num_output_tokens == len(request.token_ids)
    ended = {row["request_id"]: row["finished_at"] for row in recorded.engine.tally.requests.table()}
    assert {one.request_id: one.ended_at for one in read_run_file(tmp_path / "run").submissions} == ended


def test_a_policy_that_stops_leaves_all_that_was_drafted_and_not_only_what_it_kept(target, tmp_path):
    _, watcher = watched(target, "confidence_stop:threshold=.9@exit3", tmp_path / "run")
    kept = sum(block[0] for block in watcher.blocks.values())
    trace = Trace.open(tmp_path / "run")
    assert sum(int(trace.visits(request, 1)[1].num_drafts.sum()) for request in range(len(trace))) > kept


def test_the_folder_says_how_the_run_was_made_and_holds_its_cost_table(target, tmp_path):
    engine = build_engine(target, "dcut@ucb1", DRAFTERS, depth=DEPTH, seed=9, cost=TABLE, **LIMITS)
    with TrajectoryRecorder(tmp_path / "run", engine, licence="CC0-1.0") as recorder:
        facts = read_run_file(tmp_path / "run")
        assert not facts.complete
        before = engine.controller.state_dict()
        recorder.tag(engine.submit([5, 6, 7], SamplingParams(max_tokens=4, seed=2**63 - 1)), 77)
        engine.run()
    facts = read_run_file(tmp_path / "run")
    assert facts.complete
    assert facts.controller.text == "dcut@ucb1"
    assert facts.controller.state == before != engine.controller.state_dict()
    assert facts.seed == 9
    assert facts.engine.num_kv_blocks == LIMITS["num_kv_blocks"]
    assert facts.submissions[0].prompt_id == 77
    assert facts.submissions[0].sampling.seed == 2**63 - 1
    assert CostTable.open(tmp_path / "run" / "cost").meta.cells_sha256 == facts.cost.cells_sha256
    trace = Trace.open(tmp_path / "run")
    assert trace.manifest.licence == "CC0-1.0"
    assert trace.requests.prompt_id.tolist() == [77]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "blocks.parquet", "cost", "manifest.json", "requests.parquet", "run.json", "steps.parquet",
    ]  # fmt: skip
    assert engine.observers == []


def test_what_the_engine_derived_from_the_model_is_written_as_a_number(target, tmp_path):
    engine = build_engine(target, "fixed_depth@ngram", DRAFTERS, depth=DEPTH, cost=TABLE, max_num_seqs=2)
    with TrajectoryRecorder(tmp_path / "run", engine):
        engine.submit([5, 6], SamplingParams(max_tokens=2))
        engine.run()
    limits = read_run_file(tmp_path / "run").engine
    assert limits.num_kv_blocks == engine.setup.pool.num_blocks
    assert limits.max_model_len == engine.setup.max_model_len


def test_a_recorder_refuses_a_run_under_way_and_a_folder_in_use(target, tmp_path):
    engine = build_engine(target, "fixed_depth@ngram", DRAFTERS, depth=DEPTH, cost=TABLE)
    engine.submit([5, 6], SamplingParams(max_tokens=3))
    with TrajectoryRecorder(tmp_path / "run", engine):
        engine.run()
    with pytest.raises(InputError, match="record a run from before its first one"):
        TrajectoryRecorder(tmp_path / "second", engine)
    fresh = build_engine(target, "fixed_depth@ngram", DRAFTERS, depth=DEPTH, cost=TABLE)
    with pytest.raises(InputError, match="holds a finished trace"):
        TrajectoryRecorder(tmp_path / "run", fresh)


def test_a_run_without_a_single_token_cannot_be_closed(target, tmp_path):
    engine = build_engine(target, "fixed_depth@ngram", DRAFTERS, depth=DEPTH, cost=TABLE)
    recorder = TrajectoryRecorder(tmp_path / "run", engine)
    engine.cancel(engine.submit([5, 6]))
    engine.run()
    with pytest.raises(InputError, match="no request was added"):
        recorder.close()
    assert not read_run_file(tmp_path / "run").complete


def test_a_run_that_ends_in_an_exception_stays_incomplete(target, tmp_path):
    engine = build_engine(target, "fixed_depth@ngram", DRAFTERS, depth=DEPTH, cost=TABLE)
    engine.submit([5, 6], SamplingParams(max_tokens=3))
    engine.submit([5, 6], SamplingParams(max_tokens=3), on_chunk=lambda chunk: {}[chunk.request_id])
    with pytest.raises(KeyError):
        _record_all(tmp_path / "run", engine)
    assert engine.observers == []
    assert not read_run_file(tmp_path / "run").complete
    with pytest.raises(InputError, match="cut short"):
        LiveRun.open(tmp_path / "run")


def _record_all(folder, engine):
    with TrajectoryRecorder(folder, engine):
        engine.run()


class Unsure:
    """Makes a drafter's confidences no numbers."""

    def __init__(self, drafter):
        self._drafter, self.spec, self.score_source = drafter, drafter.spec, drafter.score_source
        self.catch_up, self.release = drafter.catch_up, drafter.release

    def draft(self, batch, depth, stop=None):
        drafted = self._drafter.draft(batch, depth, stop)
        for values in drafted.scores.values():
            values[:, 0] = float("nan")
        return drafted


def test_a_score_that_is_no_number_is_written_as_no_confidence_and_counted(target, tmp_path):
    def mutate(engine):
        engine.drafters = (engine.drafters[0], Unsure(engine.drafters[1]))

    record(target, "dcut@exit3", tmp_path / "run", mutate=mutate)
    assert read_run_file(tmp_path / "run").num_scores_zeroed > 0
    Trace.open(tmp_path / "run").validate()


def begin(target, folder, lengths, **limits):
    """An engine that is recorded, with a request of each length in it."""
    engine = build_engine(target, "dcut@ngram", DRAFTERS[:1], depth=DEPTH, cost=TABLE, **LIMITS | limits)
    recorder = TrajectoryRecorder(folder, engine)
    for length in lengths:
        engine.submit([5, 6, 7, 8], SamplingParams(length, ignore_eos=True))
    return engine, recorder


def step_until_ended(engine, count):
    while len(engine.ended) < count:
        engine.step(settled=False)


def in_journal(folder):
    """Requests that would be there if the process were killed now, and steps."""
    steps = (folder / STEPS_JOURNAL).stat().st_size / STEP_DTYPE.itemsize
    journalled = JournalledRequests(folder).blocks(())
    return [row.request_id for row, _ in journalled], steps


def test_who_ended_is_written_down_while_the_next_pass_runs_and_not_before_it_is_launched(target, tmp_path):
    engine, recorder = begin(target, tmp_path / "run", (4, 30))
    step_until_ended(engine, 1)
    ended_in = engine.tally.totals.num_steps
    assert in_journal(tmp_path / "run") == ([], ended_in)
    seen, run, readback = [], engine.setup.runner.run, engine._stepper._committer._readback
    fetch, append = readback.fetch, recorder._requests.append
    engine.setup.runner.run = lambda *given: (seen.append("launched"), run(*given))[1]
    recorder._requests.append = lambda *given: (append(*given), seen.append("written"))[0]
    readback.fetch = lambda: (seen.append(("read", in_journal(tmp_path / "run"))), fetch())[1]
    engine.step(settled=False)
    assert seen == ["launched", "written", ("read", ([0], ended_in))]
    recorder.close()


def settle(engine, recorder):
    engine.settle()
    engine.settle()  # nothing is written twice


def step_idly(engine, recorder):
    assert not engine.step(settled=False)


def leave_by_exception(engine, recorder):
    with pytest.raises(ZeroDivisionError), recorder:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("finish", "lengths", "written"),
    [
        (settle, (4, 30), [0]),
        (step_idly, (4,), [0]),
        (step_idly, (4, 4), [0, 1]),
        (leave_by_exception, (4, 30), [0]),
        (leave_by_exception, (4, 4, 30), [0, 1]),
    ],
)
def test_who_ended_is_written_down_where_no_step_follows(target, tmp_path, finish, lengths, written):
    engine, recorder = begin(target, tmp_path / "run", lengths)
    step_until_ended(engine, len(written))
    assert in_journal(tmp_path / "run")[0] == []
    finish(engine, recorder)
    assert in_journal(tmp_path / "run") == (written, engine.tally.totals.num_steps)
    if finish is leave_by_exception:  # who is no longer watched costs nothing any more
        engine.run()
        assert in_journal(tmp_path / "run")[0] == written
        assert recover(tmp_path / "run").name == "run"
        assert Trace.open(tmp_path / "run").requests.request_id.tolist() == written


def test_what_is_put_off_is_not_lost_when_the_recorder_is_closed_or_the_next_step_fails(target, tmp_path):
    engine, recorder = begin(target, tmp_path / "run", (4, 30))
    step_until_ended(engine, 1)
    run = engine.setup.runner.run

    def failing(*given):
        engine.setup.runner.run = run
        raise MemoryError

    engine.setup.runner.run = failing
    with pytest.raises(MemoryError):
        engine.step(settled=False)
    assert in_journal(tmp_path / "run")[0] == []
    recorder.close()
    facts, trace = read_run_file(tmp_path / "run"), Trace.open(tmp_path / "run")
    assert [one.end for one in facts.submissions] == ["finished", "unfinished"]
    assert trace.requests.request_id.tolist() == [0, 1]


def test_who_ended_is_written_with_the_step_it_ended_in_and_not_with_the_one_that_hid_the_writing(target, tmp_path):
    engine, recorder = begin(target, tmp_path / "run", (4, 30))
    cancelled = engine.submit([5, 6], SamplingParams(30))
    step_until_ended(engine, 1)
    over = engine.tally.steps.table()[-1]
    at = float(over["started_at"])
    for phase in ("draft", "plan", "verify", "host", "switch", "prefill"):
        at += float(over[f"{phase}_seconds"])
    engine.cancel(cancelled)
    before = engine.tally.totals.num_steps
    engine.run()
    recorder.close()
    facts = read_run_file(tmp_path / "run")
    assert facts.submissions[0].ended_at == pytest.approx(at, abs=1e-12)
    assert [(one.sequence, one.before_step) for one in facts.cancellations] == [(2, before)]


def test_who_cannot_be_written_down_costs_nobody_else(target, tmp_path):
    """The others are written with the same pass, and those that end later with theirs."""
    engine, recorder = begin(target, tmp_path / "run", (4, 4, 4, 9, 30), num_kv_blocks=40)
    step_until_ended(engine, 3)
    append, told = recorder._requests.append, []

    def failing(row, visited):
        told.append(row.request_id)
        if row.request_id == 1:
            raise OSError("no space left")
        append(row, visited)

    recorder._requests.append = failing
    with pytest.raises(OSError, match="no space left"):
        engine.step(settled=False)
    assert in_journal(tmp_path / "run")[0] == [0, 2]
    step_until_ended(engine, 4)
    engine.step(settled=False)
    assert in_journal(tmp_path / "run")[0] == [0, 2, 3]
    engine.run()
    recorder.close()
    assert told == [0, 1, 2, 3, 4]
    assert Trace.open(tmp_path / "run").requests.request_id.tolist() == [0, 2, 3, 4]


def test_a_journal_is_closed_although_the_last_request_cannot_be_written(target, tmp_path):
    engine, recorder = begin(target, tmp_path / "run", (4, 30))
    step_until_ended(engine, 1)
    recorder._requests.append = lambda row, visited: {}["full"]
    with pytest.raises(KeyError, match="full") as caught:
        leave_by_exception(engine, recorder)
    assert isinstance(caught.value.__context__, ZeroDivisionError)
    assert recorder._requests._file.closed


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
import torch
torch.set_num_threads(1)
from tests.live.killed_run import run
run(sys.argv[1], lambda: os.kill(os.getpid(), signal.SIGKILL), sys.argv[3] == "settled")
"""


@pytest.mark.parametrize("told", ["settled", "later"])
def test_a_killed_run_keeps_every_request_that_had_ended_and_the_steps_until_then(tmp_path, told):
    folder = tmp_path / "run"
    command = [sys.executable, "-c", KILLED, str(folder), str(ROOT), told]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    expected = json.loads(done.stdout.splitlines()[-1])
    assert not read_run_file(folder).complete
    with pytest.raises(InputError, match="cut short"):
        LiveRun.open(folder)
    with (folder / "steps.partial").open("ab") as journal:
        journal.write(b"half a record")
    recover(folder)
    trace = Trace.open(folder)
    report = trace.validate()
    assert trace.requests.request_id.tolist() == expected["ended"]
    assert len(expected["ended"]) == 2
    assert report.num_steps >= expected["steps_at_last_end"]
    assert not read_run_file(folder).complete
    with pytest.raises(InputError, match="made already"):
        recover(folder)
