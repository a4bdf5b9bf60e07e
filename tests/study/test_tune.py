"""Tuning: finds what is there, on one half; says what the other half makes of it."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.policies.build import build_controller
from specsim.study.tune import over_batches, tune
from specsim.study.tune_config import build_tuning
from specsim.study.tune_result import paired_gain
from specsim.study.tune_runs import TuneInputs
from tests.study.tuning_world import BEST_DEPTH, build_tuning_world


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return build_tuning_world(tmp_path_factory.mktemp("tuning"))


@pytest.fixture
def config(world):
    def build(**changes):
        document = {
            "trace": str(world / "trace"),
            "table": str(world / "table"),
            "policy": "fixed_depth@three",
            "batches": [1, 2],
            "requests": 6,
            "seeds": 2,
            "validation_seeds": 3,
        }
        return build_tuning({**document, **changes})

    return build


@pytest.fixture
def counted(monkeypatch):
    """The runs that were simulated."""
    done = []
    run = TuneInputs.run
    monkeypatch.setattr(TuneInputs, "run", lambda self, which: done.append(which) or run(self, which))
    return done


def test_the_planted_depth_is_found_by_trying_every_one(config):
    result = tune(config(search=["depth=1..15"], trials=15))  # just enough, since the default is one of them
    assert result.tuned_options == {"depth": BEST_DEPTH}
    assert result.exhaustive
    assert sorted(trial.options["depth"] for trial in result.trials) == list(range(1, 16))


def test_the_planted_depth_is_found_by_sampling_half_of_the_points(config):
    result = tune(config(policy="dcut@three", search=["depth=1..15", "include_zero", "numerator"], trials=30))
    assert not result.exhaustive
    assert len(result.trials) == 30
    assert result.gains["validation"].low > 0.0
    assert tune(config(policy="fixed_depth@three", search=["depth=1..15"], trials=14)).tuned_options["depth"] == 3


def test_trial_0_is_the_default_and_the_gain_is_over_it(config):
    result = tune(config(search=["depth=1..15"]))
    first = result.trials[0]
    assert (first.policy, first.options) == ("fixed_depth@three", {"depth": 15})
    gain = result.gains["validation"]
    assert gain.gain == pytest.approx(gain.tuned / gain.default - 1.0, rel=0.02)
    assert gain.low <= gain.gain <= gain.high
    assert gain.gain > 0.2
    assert "higher than the default's" in result.verdict[0]


def test_a_default_outside_the_space_is_still_trial_0(config):
    result = tune(config(search=["depth=2..4"]))
    assert [trial.policy for trial in result.trials] == [
        "fixed_depth@three",
        *(f"fixed_depth:depth={depth}@three" for depth in (2, 3, 4)),
    ]


def test_the_same_tuning_gives_the_same_result_and_another_sampler_seed_another_search(config):
    asked = {"policy": "dcut@three", "trials": 14}
    once = tune(config(**asked))
    assert tune(config(**asked)).to_json() == once.to_json()
    other = tune(config(**asked, seed=1))
    assert [t.options for t in other.trials] != [t.options for t in once.trials]


def test_several_processes_change_nothing(config):
    asked = config(search=["depth=2..4"])
    assert tune(asked, jobs=2).to_json() == tune(asked).to_json()


def test_every_trial_meets_the_same_requests(config, counted):
    tune(config(search=["depth=2..5"]))
    by_policy: dict[str, set] = {}
    for run in counted:
        if run.half == "tuning" and run.seed < 2:
            by_policy.setdefault(run.policy, set()).add((run.batch, run.seed))
    assert len(by_policy) == 6  # autoregressive, the default, four depths
    assert all(runs == {(1, 0), (1, 1), (2, 0), (2, 1)} for runs in by_policy.values())


def test_the_halves_are_disjoint_and_trials_see_the_tuning_half_alone(config, counted):
    inputs = TuneInputs(config())
    tuning, validation = (set(inputs.halves[half].requests.request_id.tolist()) for half in ("tuning", "validation"))
    assert not tuning & validation
    assert tuning | validation == set(inputs.whole.requests.request_id.tolist())
    tune(config(search=["depth=1..4"]))
    validated = {json.loads(run.policy)["budget"]["name"] for run in counted if run.half == "validation"}
    depths = {json.loads(run.policy)["budget"]["options"].get("depth") for run in counted if run.half == "validation"}
    assert validated == {"autoregressive", "fixed_depth"}
    assert depths == {None, BEST_DEPTH}  # the default (and autoregressive), and the winner


def test_a_subset_serves_the_blocks_of_its_own_requests(config):
    inputs = TuneInputs(config())
    half = inputs.halves["validation"]
    for index, request_id in enumerate(half.requests.request_id.tolist()):
        row = inputs.whole.requests.request_id.tolist().index(request_id)
        expected = inputs.whole.blocks(row, 0)
        assert half.blocks(index, 0).num_accepted.tolist() == expected.num_accepted.tolist()
        assert half.visits(index, 0)[0].tolist() == inputs.whole.visits(row, 0)[0].tolist()


def test_a_killed_tuning_resumes_loses_nothing_and_ends_as_if_never_killed(config, tmp_path, counted):
    asked = config(policy="dcut@three", trials=8)
    whole = tune(asked)
    num_runs = len(counted)
    counted.clear()

    def kill(done, total):
        if done >= 13:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(asked, kill, out=tmp_path / "out")
    kept = len((tmp_path / "out" / "runs.jsonl").read_text().splitlines())
    assert kept == len(counted) > 0
    with (tmp_path / "out" / "runs.jsonl").open("a") as file:
        file.write('{"key": "cut sho')  # what a kill in the middle of a write leaves
    resumed = tune(asked, out=tmp_path / "out", resume=True)
    assert len(counted) == num_runs
    assert resumed.to_json() == whole.to_json()
    assert json.loads((tmp_path / "out" / "tune.json").read_text()) == json.loads(whole.to_json())
    counted.clear()
    tune(asked, out=tmp_path / "out", resume=True)
    assert counted == []


def test_runs_of_another_tuning_are_not_taken(config, tmp_path, counted):
    tune(config(search=["depth=2..3"]), out=tmp_path)
    first = len(counted)
    tune(config(search=["depth=2..3"], requests=7), out=tmp_path, resume=True)
    assert len(counted) == 2 * first


def test_a_folder_with_runs_is_not_overwritten_and_a_strange_line_is_named(config, tmp_path):
    tune(config(search=["depth=2..3"]), out=tmp_path)
    with pytest.raises(InputError, match="holds runs already; continue with --resume"):
        tune(config(search=["depth=2..3"]), out=tmp_path)
    (tmp_path / "runs.jsonl").write_text('{"key": 1}\n')
    with pytest.raises(InputError, match=r"runs.jsonl, line 1: not a run of a tuning"):
        tune(config(), out=tmp_path, resume=True)


def test_what_does_not_go_together_is_pruned_with_its_reason(config, world):
    result = tune(config(table=str(world / "shallow"), policy="fixed_depth:depth=2@three", search=["depth=1..7"]))
    pruned = {trial.options["depth"]: trial.pruned for trial in result.trials if trial.score is None}
    assert set(pruned) == {6, 7}
    assert all("verify tokens" in reason and "outside what was measured" in reason for reason in pruned.values())
    assert result.tuned_options == {"depth": BEST_DEPTH}
    assert any("2 of 7 trials could not run" in note for note in result.notes)


def test_a_pruned_proposal_does_not_stop_the_sampler(config, world):
    result = tune(
        config(
            table=str(world / "shallow"),
            policy="dcut:depth=2@three",
            search=["depth=1..15", "numerator", "count=paper,code"],
            trials=20,
        )
    )
    assert {trial.score is None for trial in result.trials} == {True, False}
    assert result.tuned_options["depth"] <= 5


def test_a_default_that_cannot_run_is_the_persons_fault(config, world):
    with pytest.raises(InputError, match=r"the policy to start from cannot run: .*outside what was measured"):
        tune(config(table=str(world / "shallow"), search=["depth=1..3"]))


def test_an_option_without_effect_leaves_the_default(config):
    result = tune(config(policy="fixed_ratio:ratio=1,depth=3@three", search=["count=paper,code"]))
    assert result.unchanged
    assert result.verdict == [
        "Nothing tried has a better throughput than the default: the tuned controller is the default."
    ]


def test_a_gain_that_is_luck_is_called_noise(config):
    # Two drafters that are equally good at the same price: the prior changes the draws, and nothing else.
    result = tune(
        config(policy="fixed_depth:depth=3@thompson_beta", search=["prior=1.0..1.3"], trials=8, validation_seeds=10)
    )
    assert not result.unchanged
    assert result.gains["validation"].within_noise
    assert result.verdict[0].startswith("Within noise: ")
    assert "an interval that includes 0. Keep the default." in result.verdict[0]


def test_the_verdict_says_worse_overfitted_and_slower_than_autoregressive(config):
    result = tune(config(search=["depth=2..4"]))
    worse = paired_gain("throughput", np.array([1.0, 1.1]), np.array([0.8, 0.9]))
    gains = {**result.gains, "validation": worse}
    verdict = dataclasses.replace(result, gains=gains).verdict
    assert verdict[0].startswith("Worse: ")
    assert "loses to the default by 19.1 %" in verdict[0]
    assert verdict[1].startswith("Overfitted: ")
    assert verdict[2] == "Even tuned it is slower than autoregressive decoding (0.85 of its throughput)."


def test_a_gain_is_paired_and_positive_when_better_whatever_the_objective():
    default, tuned = np.array([1.0, 2.0]), np.array([1.1, 2.2])
    assert paired_gain("throughput", default, tuned).gain == pytest.approx(0.1)
    assert paired_gain("p99_tpot", default, tuned).gain == pytest.approx(-0.1)
    assert paired_gain("throughput", default, tuned).high == pytest.approx(0.1)  # pairing leaves no spread
    assert paired_gain("throughput", default, default).within_noise
    assert not paired_gain("throughput", tuned, default).within_noise


def test_batches_count_alike_in_their_geometric_mean():
    assert over_batches(np.array([[1.0, 4.0], [2.0, 8.0]])).tolist() == pytest.approx([2.0, 4.0])


def test_p99_tpot_is_made_smaller_in_seconds(config):
    result = tune(config(search=["depth=1..15"], objective="p99_tpot"))
    gain = result.gains["validation"]
    assert gain.tuned < gain.default < 0.1
    assert gain.gain == pytest.approx(1.0 - gain.tuned / gain.default, abs=0.02)
    assert (
        min(t.score for t in result.trials)
        == result.trials[[t.options for t in result.trials].index(result.tuned_options)].score
    )


def test_the_controller_file_builds_the_tuned_controller(config, tmp_path, world):
    result = tune(config(search=["depth=1..15"]), out=tmp_path, command="specsim tune ...")
    document = json.loads((tmp_path / "controller.json").read_text())
    assert document["state"] is None
    assert document["tuned"]["validated_interval"] == [result.gains["validation"].low, result.gains["validation"].high]
    assert document["tuned"]["command"] == "specsim tune ..."
    drafters = TuneInputs(config()).whole.drafters
    controller = build_controller(str(tmp_path / "controller.json"), drafters)
    assert controller.budget_policy.depth == BEST_DEPTH
    assert controller.label == "fixed_depth@three tuned for throughput"


def test_progress_ends_where_it_said_it_would(config):
    told = []
    tune(config(policy="dcut@three", trials=4), lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len({total for _, total in told}) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "latency"}, "objective is 'latency': input should be 'throughput' or 'p99_tpot'"),
        ({"batches": [2, 2]}, "batches .2, 2. repeats a value"),
        ({"batches": []}, "batches is .*at least 1"),
        ({"seeds": 10**12}, "seeds is 1000000000000: at most 10,000 are allowed"),
        ({"validation_seeds": 1}, "validation_seeds is .*at least 2"),
        ({"trials": 0}, "trials is 0: input should be greater than or equal to 1"),
        ({"policy": "nothing@three"}, "unknown budget policy 'nothing'"),
        ({"batches": [512]}, "batch 512 exceeds max_num_seqs 256"),
        ({"trace": "nowhere"}, "nowhere: no such trace"),
        ({"draft_costs": {"nobody": "three"}}, "draft cost of 'nobody'"),
    ],
)
def test_what_is_wrong_is_named(config, changes, message):
    with pytest.raises(InputError, match=message):
        tune(config(**changes))


def test_a_policy_that_has_learned_is_refused(config):
    with pytest.raises(InputError, match="brings a learned state"):
        config(policy={"budget": "dcut", "drafter": "three", "state": {}})
