"""Parity of a run as a whole: verdict, cells, prediction and what a reader is told."""

from __future__ import annotations

import json
import math

import pytest

from specsim.errors import InputError
from specsim.serving.run_file import read_run_file
from specsim.study.parity.compare import parity
from specsim.study.parity.recover import recover
from tests.sim.simulated_run import TRACE, edit_run, edit_steps, edit_submission, write_run


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace") / "trace"
    TRACE.write(folder)
    return folder


def test_a_run_that_took_the_tables_seconds_is_predicted_without_error(run, trace):
    for found in (parity(run), parity(run, trace)):
        assert found.equal
        assert found.kind == "exact"
        assert found.num_equal == found.num_steps > 20
        pairs = [*found.cells, *found.phases, *found.outcomes]
        assert {pair.name for pair in found.outcomes} >= {"engine steps", "throughput", "TTFT, mean", "TPOT, mean"}
        assert all(pair.error == pytest.approx(0.0, abs=1e-12) for pair in pairs)
        assert not any("estimate" in note for note in found.notes)


def test_seconds_that_the_table_does_not_have_show_as_relative_errors(run):
    def slower(steps):
        steps["verify_seconds"] *= 1.25

    edit_steps(run, slower)
    found = parity(run)
    phases = {pair.name: pair.error for pair in found.phases}
    assert phases["verify"] == pytest.approx(-0.2)
    assert phases["draft"] == pytest.approx(0.0, abs=1e-12)
    assert all(-0.2 <= pair.error < 0 for pair in found.cells if pair.name != "prompts alone")


def test_a_difference_keeps_what_was_equal_before_it(run):
    edit_steps(run, lambda steps: steps["plan_hash"].__setitem__(9, 1))
    found = parity(run)
    assert not found.equal
    assert (found.difference.step, found.difference.what, found.difference.live) == (9, "plan_hash", 1)
    assert found.num_equal == 9
    assert found.cells[-1].count == 9


def test_a_run_that_differs_at_once_is_reported_without_any_step(run):
    edit_submission(run, 0, before_step=3)
    found = parity(run)
    assert found.difference.step == 0
    assert found.cells == found.phases == ()


def test_what_a_reader_must_know_is_said(run):
    edit_run(run, acceptance="acceptance replayed from small", num_scores_zeroed=3)
    notes = parity(run).notes
    assert "the outputs are not the target's own: acceptance replayed from small" in notes
    assert "3 scores were no finite number and are taken as 0" in notes
    assert "the cost table is a made-up example" in notes


def test_a_trace_that_has_blocks_otherwise_makes_the_prediction_an_estimate(run, tmp_path):
    from dataclasses import replace

    from specsim.trace.synthetic import SyntheticTrace

    other = SyntheticTrace(
        replace(TRACE.config, drafters=tuple(reversed(TRACE.config.drafters)), seed=TRACE.config.seed)
    )
    other.write(tmp_path / "other")
    found = parity(run, tmp_path / "other")
    assert found.equal  # what happened, happened
    assert found.kind == "estimate"
    assert any("accepted otherwise in the trace given" in note for note in found.notes)


def test_the_document_is_json_without_nan(run):
    facts = read_run_file(run)
    edit_run(run, submissions=[one.model_dump() | {"ended_at": None} for one in facts.submissions])
    document = parity(run).document()
    text = json.dumps(document, allow_nan=False)
    assert document["equal"] is True
    assert document["difference"] is None
    tpot = next(pair for pair in json.loads(text)["outcomes"] if pair["name"] == "TPOT, mean")
    assert tpot["measured"] is None
    assert tpot["error"] is None


def test_progress_counts_every_step(run):
    told = []
    found = parity(run, report=lambda done, total: told.append((done, total)))
    assert told == [(done, found.num_steps) for done in range(1, found.num_steps + 1)]


def test_a_closed_run_has_nothing_to_recover(run):
    with pytest.raises(InputError, match="the run was closed"):
        recover(run)


def test_errors_are_relative_to_what_was_measured(run):
    found = parity(run)
    assert all(math.isfinite(pair.error) for pair in found.outcomes)
