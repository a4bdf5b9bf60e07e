"""Profiling: every cell that a simulator asks for, each the median of what was really run."""

import pytest

from specsim.cli.main import run
from specsim.core import DrafterSpec
from specsim.cost import Cell, CostTable
from specsim.errors import InputError
from specsim.live import profiler
from specsim.live.drafters import build_drafter
from specsim.live.profiler import ProfileOptions, profile

OPTIONS = ProfileOptions(batches=(1, 2), contexts=(8, 16), max_tokens=32, depth=5, repeats=2)


@pytest.fixture(scope="module")
def target(make_target):
    return make_target("float32")


@pytest.fixture
def drafters(target):
    return [build_drafter(name, target, OPTIONS.depth) for name in ("ngram", "exit2")]


def test_a_simulator_finds_every_step_up_to_the_depth_at_every_batch_and_context(target, drafters):
    table = profile(target, drafters, OPTIONS)
    assert (table.meta.label, table.meta.eager, table.meta.model) == ("measured", True, "tiny")
    for drafter in drafters:
        for batch in (1, 2):
            for context in (1, 8, 16):
                cost = table.step_cost(drafter.spec, batch, OPTIONS.depth, context)
                assert cost.seconds.shape == (batch * OPTIONS.depth + 1,)
                assert (cost.seconds > 0).all()
    assert table.prefill_seconds(100, 16) >= 0
    assert table.drafters == ("exit2", "ngram")
    beyond = DrafterSpec("ngram", "ngram", "point_mass", "parallel", ("drawn_prob",), max_depth=9)
    with pytest.raises(InputError, match="depth"):
        table.step_cost(beyond, 2, 9, 8)


def test_the_cells_are_the_grid_asked_for(target, drafters):
    cells = profile(target, drafters, OPTIONS).cells
    verify = {(cell.batch, cell.context, cell.tokens) for cell in cells if cell.phase == "verify"}
    widths = {1: (1, 2, 3, 4, 6, 8, 12, 16, 32), 2: (1, 2, 3, 4, 6, 8, 12, 16)}
    assert verify == {(b, c, b * w) for b in widths for w in widths[b] for c in (8, 16)}
    drafts = {(cell.drafter, cell.batch, cell.context, cell.depth) for cell in cells if cell.phase == "draft"}
    assert drafts == {(d, b, c, k) for d in ("ngram", "exit2") for b in (1, 2) for c in (8, 16) for k in (1, 2, 5)}
    assert {(cell.tokens, cell.context) for cell in cells if cell.phase == "prefill"} == {(16, 8), (16, 16)}


def test_a_cell_is_the_median_of_its_counted_rounds(target, drafters, monkeypatch):
    """A clock that takes 5, 1 and 2 seconds in the rounds after the warm-up, whatever runs."""
    points = 4  # two batches at two contexts
    now = {"round": 0}
    monkeypatch.setattr(profiler, "_time", lambda device, run: [None, 5.0, 1.0, 2.0][now["round"]])
    options = ProfileOptions(batches=(1, 2), contexts=(8, 16), max_tokens=8, depth=5, repeats=3)
    cells = profile(target, drafters, options, lambda done, total: now.update({"round": done // points})).cells
    assert {cell.num_samples for cell in cells} == {3}
    assert {cell.seconds for cell in cells if cell.phase != "prefill"} == {2.0}


def test_prefill_is_charged_less_the_pass_that_a_step_pays_anyway():
    cells = [
        Cell("verify", 0.25, 1, tokens=1, context=8),
        Cell("verify", 0.5, 1, tokens=1, context=16),
        Cell("prefill", 1.0, tokens=16, context=8),
        Cell("prefill", 0.375, tokens=16, context=16),
    ]
    assert [cell.seconds for cell in profiler._less_plain_pass(cells)] == [0.25, 0.5, 0.75, 0.0]


def test_a_spent_time_budget_still_measures_every_cell_once(target, drafters):
    options = ProfileOptions(batches=(1, 2), contexts=(8, 16), max_tokens=8, depth=2, repeats=50, time_budget=0.0)
    reports = []
    table = profile(target, drafters, options, lambda done, total: reports.append((done, total)))
    assert {cell.num_samples for cell in table.cells} == {1}
    assert reports[-1] == (51 * 4, 51 * 4)


def test_a_pass_that_feeds_other_tokens_than_asked_is_caught(target, drafters, monkeypatch):
    honest = profiler._pass
    monkeypatch.setattr(profiler, "_pass", lambda target, cache, batch, width, keep: honest(target, cache, batch, 1, 1))
    with pytest.raises(AssertionError, match="1 tokens processed, 2 asked"):
        profile(target, drafters, OPTIONS)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"batches": ()}, "batches none"),
        ({"batches": (1, 1)}, "batches 1, 1: must be rising"),
        ({"batches": (2, 4)}, "must start at 1"),
        ({"contexts": (0, 8)}, "contexts 0, 8"),
        ({"contexts": (16, 8)}, "contexts 16, 8"),
        ({"max_tokens": 1}, "batch 2 needs more than 1 tokens"),
        ({"depth": 0}, "depth 0"),
        ({"repeats": 0}, "repeats 0"),
        ({"contexts": (8, 250)}, "context 250 with 32 more tokens is beyond the 256 positions of 'tiny'"),
    ],
)
def test_options_that_do_not_fit_are_refused(target, drafters, changed, told):
    options = ProfileOptions(**{"batches": (1, 2), "contexts": (8, 16), "max_tokens": 32, "depth": 5} | changed)
    with pytest.raises(InputError, match=told):
        profile(target, drafters, options)


def arguments(model_folder, out, *more):
    fixed = ["profile", "--model", str(model_folder), "--out", str(out), "--drafters", "ngram,exit2", "--depth", "3"]
    return [*fixed, "--contexts", "8", "--max-tokens", "16", "--repeats", "1", "--threads", "1", *more]


def test_the_command_writes_a_table_and_does_not_write_over_it(model_folder, tmp_path, capsys):
    out = tmp_path / "mine"
    command = arguments(model_folder, out, "--batches", "1,2")
    assert run(command) == 0
    table = CostTable.open(out)
    assert (table.name, table.meta.model) == ("mine", "tiny-llama")
    assert "cells, each the median" in capsys.readouterr().err
    assert run(command) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--batches", "1,two"], "--batches '1,two': must be comma-separated integers"),
        (["--batches", "4"], "must start at 1"),
        (["--drafters", "exit7"], "layer 1 to 3"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(model_folder, tmp_path, capsys, more, told):
    assert run(arguments(model_folder, tmp_path / "t", *more)) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert len(lines) == 1
    assert told in lines[0]
    assert not (tmp_path / "t").exists()
