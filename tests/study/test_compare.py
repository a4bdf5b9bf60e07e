"""A whole study: the same in one process or two, killed and resumed, and honest about what it is."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import subprocess
import sys
import time
import types

import numpy as np
import pytest

from specsim.cost.examples import staircase_table
from specsim.errors import InputError
from specsim.study import compare as module
from specsim.study.compare import RESULT_FILE, _notes, compare
from specsim.study.plan import Plan
from specsim.study.record import PARTS, stored_keys
from specsim.study.result import StudyResult
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace


def lines(result):
    """The study's JSON without the instant it was made at."""
    return dataclasses.replace(result, created_at="").to_json().splitlines()


@pytest.fixture(scope="module")
def small(world):
    """A study run once for all tests that only look at it."""
    from specsim.config import build_study

    document = {
        "trace": str(world / "trace"),
        "tables": [str(world / "linear")],
        "policies": ["fixed_depth:depth=3@strong", "fixed_depth@weak", "dcut@strong", "dcut@weak", "dcut@ucb1"],
        "batches": [2, 8],
        "requests": 16,
        "seeds": [0, 1, 2],
    }
    return compare(build_study(document), command="specsim compare")


def cell(result, policy, batch=8):
    return next(c for c in result.cells if c.policy == policy and c.batch == batch)


def test_the_cells_come_by_load_then_by_policy_the_bound_last(small):
    assert [(c.batch, c.policy) for c in small.cells[:7]] == [
        (2, "autoregressive"),
        (2, "fixed_depth:depth=3@strong"),
        (2, "fixed_depth@weak"),
        (2, "dcut@strong"),
        (2, "dcut@weak"),
        (2, "dcut@ucb1"),
        (2, "clairvoyant"),
    ]


def test_the_reference_is_itself(small):
    reference = cell(small, "autoregressive")
    assert reference.values["speedup"] == 1.0
    assert reference.speedup_interval == (1.0, 1.0)
    assert not reference.slower_than_autoregressive
    assert not reference.not_distinguishable
    assert reference.values["mean_acceptance_length"] == 1.0
    assert reference.arm_share == {"strong": 0.0, "weak": 0.0, "none": 1.0}


def test_autoregressive_throughput_is_the_batch_over_a_plain_step(small):
    values = cell(small, "autoregressive").values
    assert values["mean_step_seconds"] == pytest.approx(0.010 + 0.0002 * 8)
    assert values["mean_batch"] == 8.0
    first_tokens = 1 + 1 / 40  # at most: prompts cost nothing here, so the first token of 40 or more is free
    assert 1.0 < values["token_throughput"] * values["mean_step_seconds"] / 8 < first_tokens


def test_drafting_badly_is_said_to_be_slower_than_not_drafting(small):
    slow = cell(small, "fixed_depth@weak")
    assert slow.slower_than_autoregressive
    assert slow.speedup_interval[1] < 1.0
    assert any("slower than autoregressive: fixed_depth@weak at batch 2 (0." in sentence for sentence in small.findings)


def test_the_bound_bounds_every_policy(small):
    for batch in (2, 8):
        bound = cell(small, "clairvoyant", batch)
        assert bound.clairvoyant
        assert bound.share_of_clairvoyant == 1.0
        for own in small.cells:
            if own.batch == batch:
                assert own.values["speedup"] <= bound.values["speedup"]
                assert own.values["regret_to_clairvoyant"] >= 0.0
    assert any("clairvoyant:depth=7@strong" in note for note in cell(small, "clairvoyant").notes)


def test_regret_is_against_the_best_fixed_policy_of_the_same_place(small):
    best = cell(small, "fixed_depth:depth=3@strong")
    assert {c.best_fixed for c in small.cells} == {"fixed_depth:depth=3@strong"}
    assert best.difference_to_best_fixed == (0.0, 0.0, 0.0)
    assert best.values["regret_to_best_fixed"] == 0.0
    own = cell(small, "dcut@ucb1")
    mean, low, high = own.difference_to_best_fixed
    assert low <= mean <= high
    assert own.values["regret_to_best_fixed"] == pytest.approx(-mean)


def test_a_bandit_is_compared_with_the_best_single_drafter_under_the_same_budget(small):
    best, bandit = cell(small, "dcut@strong"), cell(small, "dcut@ucb1")
    assert best.values["regret_to_best_arm"] == 0.0
    assert bandit.values["regret_to_best_arm"] > 0.0
    assert cell(small, "dcut@weak").values["regret_to_best_arm"] > bandit.values["regret_to_best_arm"]
    assert "regret_to_best_arm" not in cell(small, "autoregressive").values
    assert "regret_to_best_arm" not in cell(small, "clairvoyant").values


def test_a_series_of_the_best_fixed_policy_has_no_regret_at_its_end(small):
    series = cell(small, "fixed_depth:depth=3@strong").series
    behind = np.array(series["regret_tokens"])
    pace = 0.05 * series["cumulative_tokens"][-1]
    assert abs(behind[-1]) < pace
    assert cell(small, "fixed_depth@weak").series["regret_tokens"][-1] > 5 * pace


def test_values_are_means_over_the_seeds(study):
    one, other, both = (compare(study(seeds=seeds, clairvoyant=False)) for seeds in ([0], [1], [0, 1]))
    for left, right, mean in zip(one.cells, other.cells, both.cells, strict=True):
        for name, value in mean.values.items():
            expected = (left.values[name] + right.values[name]) / 2
            if not math.isnan(expected):
                assert value == pytest.approx(expected), name


def test_two_processes_find_what_one_finds(study):
    assert lines(compare(study(), jobs=2)) == lines(compare(study(), jobs=1))


def test_a_study_twice_is_the_same_study(study):
    changes = {"policies": ["dcut@ucb1"], "seeds": [0]}
    assert lines(compare(study(**changes))) == lines(compare(study(**changes)))


def test_every_run_is_kept_and_the_result_beside_them(study, tmp_path):
    told = []
    result = compare(study(), out=tmp_path / "out", progress=lambda done, total: told.append((done, total)))
    assert len(stored_keys(tmp_path / "out")) == told[-1][1] == told[-1][0]
    assert told[0][0] == 0
    assert lines(StudyResult.load(tmp_path / "out" / RESULT_FILE)) == lines(result)


def test_a_folder_with_runs_is_not_overwritten_unasked(study, tmp_path):
    compare(study(policies=["dcut@strong"], batches=[2]), out=tmp_path)
    with pytest.raises(InputError, match=r"holds runs already; continue with --resume, or give another --out"):
        compare(study(), out=tmp_path)


def test_resuming_runs_what_is_missing_and_nothing_else(study, tmp_path, monkeypatch):
    whole = compare(study(), out=tmp_path)
    removed = sorted(stored_keys(tmp_path))[:3]
    for key in removed:
        (tmp_path / PARTS / f"{key}.parquet").unlink()
    ran = []
    monkeypatch.setattr(module, "run_task", lambda *arguments: ran.append(arguments) or run_task(*arguments))
    from specsim.study.task import run_task

    assert lines(compare(study(), out=tmp_path, resume=True)) == lines(whole)
    assert len(ran) == 3


def test_runs_of_a_changed_study_are_not_taken_for_its_own(study, tmp_path):
    changes = {"policies": ["dcut@strong"], "batches": [2], "seeds": [0]}
    compare(study(**changes), out=tmp_path)
    resumed = compare(study(**changes, requests=24), out=tmp_path, resume=True)
    assert lines(resumed) == lines(compare(study(**changes, requests=24)))
    told = []
    for requests in (16, 24):  # the folder holds both now
        own = study(**changes, requests=requests)
        again = compare(own, out=tmp_path, resume=True, progress=lambda *at: told.append(at))
        assert lines(again) == lines(compare(own))
    assert told == [(3, 3), (3, 3)]


SCRIPT = """
import sys
from specsim.config import build_study
from specsim.study.compare import compare
compare(build_study({document}), jobs={jobs}, out={out!r})
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_study_loses_nothing_it_had_finished(study, tmp_path, jobs):
    wanted = study(requests=120, batches=[8], policies=["dcut@strong", "dcut@weak"], seeds=[0, 1, 2])
    document = wanted.model_dump(mode="json", exclude_unset=True)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(document=document, jobs=jobs, out=str(tmp_path / "out"))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    while len(stored_keys(tmp_path / "out")) < 3 and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    finished = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / PARTS).glob("*.parquet")}
    assert len(finished) >= 3
    result = compare(wanted, out=tmp_path / "out", resume=True)
    assert {path: path.stat().st_mtime_ns for path in finished} == finished  # read, not run again
    assert lines(result) == lines(compare(wanted))


def test_an_open_loop_compares_latency(study):
    result = compare(study(batches=[], rates=[3.0], requests=24, seeds=[0, 1, 2]))
    reference, own = cell(result, "autoregressive", 0), cell(result, "dcut@strong", 0)
    assert own.rate == 3.0
    assert own.values["token_throughput"] == pytest.approx(reference.values["token_throughput"], rel=0.2)
    assert own.values["speedup"] == pytest.approx(reference.values["e2e_mean"] / own.values["e2e_mean"], rel=0.05)
    assert own.values["speedup"] > 1.3
    assert any("arrive at their own pace" in note for note in result.notes)


def test_what_a_reader_must_know_is_noted(small, study):
    assert "The trace synthetic-small is synthetic: its acceptance is made up, not recorded." in small.notes
    assert any(note.startswith("Prompts cost nothing here") for note in small.notes)
    assert "example-linear: the cost table is a made-up example." in small.notes
    assert not any("clairvoyant" in note for note in small.notes)  # that one belongs to the bound's own cell
    charged = compare(study(engine={"prefill": "charged"}, policies=["dcut@strong"], batches=[2], seeds=[0]))
    assert not any("Prompts" in note for note in charged.notes)
    assert any(note.startswith("One seed") for note in charged.notes)


def test_steps_of_one_model_under_the_acceptance_of_another_are_called_a_what_if(study):

    def notes(label, synthetic, target):
        plan = Plan(study())
        plan.tables[0].meta = plan.tables[0].meta.model_copy(update={"label": label, "model": "large"})
        manifest = plan.trace.manifest.model_copy(update={"synthetic": synthetic, "target": target})
        plan.trace = types.SimpleNamespace(manifest=manifest)
        return _notes(plan, [])

    wanted = "example-linear: steps of large, acceptance of small: a what-if, not a forecast."
    assert wanted in notes("measured", False, "small")
    for other in (("measured", False, "large"), ("example", False, "small"), ("measured", True, "small")):
        assert not any("what-if, not a forecast" in note for note in notes(*other))


def test_a_what_if_price_is_noted_and_listed(study):
    result = compare(study(draft_costs={"strong": "weak"}, policies=["dcut@strong"], batches=[2], seeds=[0]))
    assert "example-linear: what-if: drafting by strong is priced as weak." in result.notes
    assert result.tables[0]["what-if prices"] == ["strong at the price of weak"]


def test_case_20_verifying_what_does_not_pay_is_reported_as_slower_than_autoregressive(tmp_path):
    """Cost 10 ms to 64 tokens and 4 ms per further 64; B=64, K=4, each position accepted with .5."""
    drafter = SyntheticDrafter("even", rates=(0.5,), max_depth=4, hidden_variance=0.0)
    from specsim.trace.hardness import Spread

    config = SyntheticConfig(
        "case-20", (drafter,), num_requests=128, num_output_tokens=(200, 200), spread=Spread(0.0, 0.0)
    )
    SyntheticTrace(config).write(tmp_path / "trace")
    heights = {size: 0.010 + 0.004 * (size // 64 - 1) for size in (64, 128, 192, 256, 320)}
    staircase_table(heights, batches=(64,), drafters={"even": 1e-12}, max_depth=4).save(tmp_path / "cost")
    from specsim.config import build_study

    document = {
        "trace": str(tmp_path / "trace"),
        "tables": [str(tmp_path / "cost")],
        "policies": ["fixed_depth:depth=4@even"],
        "batches": [64],
        "requests": 192,
        "seeds": 2,
    }
    result = compare(build_study(document))
    fixed = cell(result, "fixed_depth:depth=4@even", 64)
    assert cell(result, "autoregressive", 64).values["token_throughput"] == pytest.approx(6400, rel=0.01)
    assert fixed.values["mean_step_seconds"] == pytest.approx(0.026)
    assert fixed.values["token_throughput"] == pytest.approx(124 / 0.026, rel=0.03)  # 4.77 tokens/ms
    assert fixed.slower_than_autoregressive
    assert any(
        "slower than autoregressive: fixed_depth:depth=4@even at batch 64 (0.7" in sentence
        for sentence in result.findings
    )
