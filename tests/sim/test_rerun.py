"""A recorded run taken again: equal where nothing was touched, and the first difference named where something was."""

from __future__ import annotations

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from specsim.errors import InputError
from specsim.policies.build import build_controller
from specsim.policies.config import ControllerConfig
from specsim.serving.run_file import read_run_file
from specsim.serving.tally import plan_hash
from specsim.sim.rerun import COMPARED, Rerun
from specsim.sim.rerun_predict import predict
from specsim.sim.rerun_replay import TrajectoryReplay
from specsim.sim.rerun_run import PHASES, LiveRun
from specsim.trace import Trace
from specsim.trace.steps import steps_table
from tests.sim.simulated_run import TRACE, edit_run, edit_steps, edit_submission, write_run
from tests.trace.traces import drop_row, edit_manifest, reseal, spoil

SPECS = (
    "autoregressive",
    "fixed_depth:depth=3@thompson_beta",
    "nightjar@ucb1",
    "goodput_depth@epsilon_greedy",
    "dcut_lagged@exp3s",
    "dcut@contextual:scope=request",
    "slo_dcut:tpot_seconds=.02@round_robin",
)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A copy of the run of a controller, which a test may spoil; each is simulated once."""
    originals = {}

    def copy(folder, spec="dcut@ucb1"):
        if spec not in originals:
            originals[spec] = write_run(tmp_path_factory.mktemp("run") / "run", spec)
        return shutil.copytree(originals[spec], folder)

    return copy


def take_again(folder):
    rerun = Rerun(LiveRun.open(folder))
    return list(rerun.steps()), rerun.difference


@pytest.mark.parametrize("spec", SPECS)
def test_a_run_taken_again_makes_every_decision_again(written, tmp_path, spec):
    folder = written(tmp_path / "run", spec)
    steps, difference = take_again(folder)
    recorded = Trace.open(folder).steps()
    assert difference is None
    assert len(steps) == len(recorded) > 20
    assert [step.plan_hash for step in steps] == recorded["plan_hash"].tolist()
    assert all(plan_hash(step.num_verify) == step.plan_hash for step in steps)
    for name, column in (("arm", "arm"), ("depth", "depth"), ("budget", "num_verified"), ("batch", "batch"),
                         ("num_emitted", "num_emitted"), ("tokens_paid", "num_tokens_paid")):  # fmt: skip
        assert [getattr(step, name) for step in steps] == recorded[column].tolist()
    # The run was simulated, so what the table says is what was measured.
    assert all(step.seconds == step.table_seconds for step in steps)


@pytest.mark.parametrize("column", COMPARED)
def test_a_tampered_column_is_named_with_its_step_and_both_values(written, tmp_path, column):
    folder = written(tmp_path / "run", "fixed_ratio:depth=3,ratio=.7@ucb1")
    steps = Trace.open(folder).steps()
    # A step whose counts leave room for a change that a reader of the steps table does not refuse.
    busy = (steps["num_drafted"] > steps["num_verified"]) & (steps["num_tested"] < steps["num_verified"])
    index = int(np.flatnonzero(busy & (steps["num_accepted"] < steps["num_tested"]))[0])
    true = int(steps[column][index])
    change = -1 if column == "num_drafted" else 1
    value = 1 - true if column == "arm" else true + change

    def tamper(records):
        records[column][index] = value

    edit_steps(folder, tamper)
    taken, difference = take_again(folder)
    assert (difference.step, difference.what, difference.live, difference.rerun) == (index, column, value, true)
    assert len(taken) == index
    assert str(difference) == f"step {index}: {column} was {value} live and is {true} in the rerun"
    assert len(difference.requests) == len(difference.lengths)


def test_a_steps_table_that_was_changed_without_its_hash_is_refused(written, tmp_path):
    folder = written(tmp_path / "run")
    spoiled = (folder / "manifest.json").read_bytes()
    edit_steps(folder, lambda records: records["plan_hash"].__setitem__(3, 0))
    (folder / "manifest.json").write_bytes(spoiled)
    with pytest.raises(InputError, match=r"steps\.parquet: sha256 is"):
        LiveRun.open(folder)


def test_requests_get_their_tokens_at_the_instants_they_did(written, tmp_path):
    folder = written(tmp_path / "run")
    rerun = Rerun(LiveRun.open(folder))
    list(rerun.steps())
    told = {one.request_id: (one.first_token_at, one.ended_at) for one in read_run_file(folder).submissions}
    again = rerun.replica.tally.requests.table()
    assert {row["request_id"]: (row["first_token_at"], row["finished_at"]) for row in again} == told


def test_one_accepted_draft_too_many_is_reported(written, tmp_path, monkeypatch):
    honest = TrajectoryReplay.draft

    def generous(self, *arguments):
        draft, acceptable = honest(self, *arguments)
        return draft, acceptable + 1

    monkeypatch.setattr(TrajectoryReplay, "draft", generous)
    _, difference = take_again(written(tmp_path / "run"))
    assert difference.what in ("num_tested", "num_accepted")
    assert difference.rerun > difference.live


def test_another_seed_is_reported_where_it_draws_another_arm(written, tmp_path):
    folder = written(tmp_path / "run", "fixed_depth:depth=3@thompson_beta")
    edit_run(folder, seed=6)
    _, difference = take_again(folder)
    assert difference.what == "arm"


def test_another_policy_or_a_state_that_was_warm_is_reported(written, tmp_path):
    folder = written(tmp_path / "run")
    facts = read_run_file(folder)
    config = dict(facts.controller.config) | {"budget": {"name": "fixed_ratio", "options": {"ratio": 1.0}}}
    edit_run(folder, controller=facts.controller.model_dump() | {"config": config})
    _, difference = take_again(folder)
    assert difference.what in ("num_verified", "plan_hash")
    learned = LiveRun.open(written(tmp_path / "second"))
    rerun = Rerun(learned)
    list(rerun.steps())
    warm = rerun.replica.controller.state_dict()
    edit_run(tmp_path / "second", controller=facts.controller.model_dump() | {"state": warm})
    _, difference = take_again(tmp_path / "second")
    assert difference.what == "arm"  # no arm is tried first any more


@pytest.mark.parametrize(("before", "what"), [(0, "num_waiting"), (9, "batch")])
def test_a_request_that_comes_at_another_step_is_reported(written, tmp_path, before, what):
    folder = written(tmp_path / "run")
    edit_submission(folder, 1, before_step=before)
    _, difference = take_again(folder)
    assert difference.what in (what, "num_running", "prefill_tokens", "num_waiting")


def test_the_controller_learns_from_the_seconds_that_were_measured(written, tmp_path):
    def slow(records):
        records["verify_seconds"] *= np.where(records["arm"] == 0, 30.0, 1.0)

    timed = "fixed_depth:depth=3@ucb1:reward=throughput,c=.1"
    for number, (spec, differs) in enumerate([(timed, True), ("fixed_depth:depth=3@thompson_beta", False)]):
        folder = written(tmp_path / str(number), spec)
        edit_steps(folder, slow)
        assert (take_again(folder)[1] is not None) == differs


def test_a_missing_block_is_a_finding_and_no_crash(written, tmp_path):
    folder = written(tmp_path / "run")
    spoil(folder, "blocks.parquet", drop_row(20))
    _, difference = take_again(folder)
    assert difference.what == "the drafts"
    assert "was not recorded" in difference.rerun


def test_steps_that_are_left_over_on_either_side_are_reported(written, tmp_path):
    folder = written(tmp_path / "run")
    count = len(Trace.open(folder).steps())
    steps = Trace.open(folder).steps()
    pq.write_table(steps_table(steps[:-1]), folder / "steps.parquet", write_page_checksum=True)
    reseal(folder)
    with pytest.raises(InputError, match=f"{count - 1} engine steps, but run.json says {count}"):
        LiveRun.open(folder)
    edit_run(folder, num_steps=count - 1)
    _, difference = take_again(folder)
    assert difference.what == "requests still running at the end"
    assert (difference.step, difference.live) == (count - 1, "none")
    pq.write_table(steps_table(np.concatenate([steps, steps[-1:]])), folder / "steps.parquet", write_page_checksum=True)
    reseal(folder)
    edit_run(folder, num_steps=count + 1)
    _, difference = take_again(folder)
    assert (difference.step, difference.rerun) == (count, "nothing to do")


def test_a_run_simulated_at_the_seconds_it_took_is_predicted_to_the_step(written, tmp_path):
    folder = written(tmp_path / "run")
    run = LiveRun.open(folder)
    alone = predict(run)
    assert alone.exact
    assert alone.steps.tobytes() == run.steps.tobytes()
    joined = predict(run, TRACE)
    assert joined.exact
    assert joined.steps.tobytes() == run.steps.tobytes()
    assert joined.num_blocks == alone.num_blocks == pq.read_metadata(folder / "blocks.parquet").num_rows


def test_a_prediction_away_from_the_recorded_path_is_an_estimate_unless_a_trace_knows_the_way(written, tmp_path):
    folder = written(tmp_path / "run", "nightjar@ucb1")

    def slow(records):  # another machine: the policy would have gone another way at the table's seconds
        records["verify_seconds"] *= np.where(records["batch"] > 1, 3.0, 1.0)

    edit_steps(folder, slow)
    state = read_run_file(folder).controller
    config = dict(state.config) | {"budget": {"name": "fixed_depth", "options": {"depth": 2}}}
    edit_run(folder, controller=state.model_dump() | {"config": config, "state": _state_of(config)})
    run = LiveRun.open(folder)
    estimate, exact = predict(run), predict(run, TRACE)
    assert estimate.resampled > 0
    assert not estimate.exact
    assert exact.exact
    assert exact.resampled == exact.censored == exact.contradicted == 0


def test_drafts_that_the_run_cut_off_before_they_were_judged_make_an_estimate(written, tmp_path):
    folder = written(tmp_path / "run", "fixed_ratio:ratio=.25@strong")
    state = read_run_file(folder).controller
    config = dict(state.config) | {"budget": {"name": "fixed_depth", "options": {}}}
    edit_run(folder, controller=state.model_dump() | {"config": config, "state": _state_of(config)})
    run = LiveRun.open(folder)
    assert predict(run).censored > 0
    assert predict(run, TRACE).exact


def test_clients_of_a_closed_loop_follow_one_another_in_the_prediction_too(tmp_path):
    folder = write_run(tmp_path / "run", closed_loop=3)
    assert take_again(folder)[1] is None
    honest = Trace.open(folder).steps()

    def slow(records):  # arrivals are then as late as the slow engine made them
        for name in ("started_at", *(f"{phase}_seconds" for phase in PHASES)):
            records[name] *= 2.0

    edit_steps(folder, slow)
    for index, one in enumerate(read_run_file(folder).submissions):
        edit_submission(folder, index, arrived_at=2.0 * one.arrived_at)
    predicted = predict(LiveRun.open(folder))
    assert predicted.exact
    assert predicted.steps.tobytes() == honest.tobytes()
    edit_run(folder, closed_loop=None)
    assert predict(LiveRun.open(folder)).steps.tobytes() != honest.tobytes()


def test_a_score_that_a_trace_lacks_is_derived_or_refused_where_it_is_read(written, tmp_path):
    folder = written(tmp_path / "run", "dcut:score=max_prob@strong")
    entries = [entry.model_copy(update={"scores": ("drawn_prob",)}) for entry in TRACE.manifest.drafters]
    TRACE.write(tmp_path / "prompts")
    edit_manifest(
        tmp_path / "prompts",
        lambda record: record.update(drafters=[entry.model_dump(mode="json") for entry in entries]),
    )
    bare = Trace.open(tmp_path / "prompts")
    assert bare.drafters[0].scores == ("drawn_prob",)
    run = LiveRun.open(folder)
    assert predict(run, bare).steps.tobytes() == run.steps.tobytes()  # a certain draft is its law's most likely token
    state = read_run_file(folder).controller
    config = dict(state.config) | {"budget": {"name": "dcut", "options": {"score": "margin"}}}
    edit_run(folder, controller=state.model_dump() | {"config": config})
    with pytest.raises(InputError, match="margin"):
        predict(LiveRun.open(folder), bare)


def test_an_engine_that_idled_is_predicted_to_start_when_it_did(written, tmp_path):
    folder = written(tmp_path / "run")

    def later(records):
        records["started_at"] += 1.0

    edit_steps(folder, later)
    for index, one in enumerate(read_run_file(folder).submissions[1:], start=1):
        edit_submission(folder, index, arrived_at=one.arrived_at + 1.0)
    run = LiveRun.open(folder)
    predicted = predict(run).steps  # the first request has waited for a second
    assert predicted["started_at"][0] == run.steps["started_at"][0] == 1.0
    for column in COMPARED:
        assert predicted[column].tolist() == run.steps[column].tolist()


def _state_of(config):
    return build_controller(ControllerConfig.model_validate(config), TRACE.drafters).state_dict()


def test_a_trace_of_other_prompts_is_refused(written, tmp_path):
    folder = written(tmp_path / "run")
    edit_submission(folder, 2, num_prompt_tokens=3)
    with pytest.raises(InputError, match="request 702 has num_prompt_tokens 3"):
        predict(LiveRun.open(folder), TRACE)
    edit_submission(folder, 2, prompt_id=10**6)
    with pytest.raises(InputError, match="no request for the run's request 702"):
        predict(LiveRun.open(folder), TRACE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"complete": False}, "the run was cut short"),
        ({"drafters": ["weak", "strong"]}, "drafters are"),
        ({"cost": {"name": "x", "cells_sha256": "0" * 64}}, "cells_sha256 is"),
        ({"cancellations": [{"sequence": 99, "before_step": 0}]}, "no submission 99"),
        ({"submissions": []}, "there are none, but"),
    ],
)
def test_a_run_file_that_contradicts_the_folder_is_refused(written, tmp_path, change, message):
    folder = written(tmp_path / "run")
    edit_run(folder, **change)
    with pytest.raises(InputError, match=message):
        LiveRun.open(folder)
