"""Profiling: every cell that a simulator asks for, each the median of what was really run."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from specsim.cli.main import run
from specsim.core import DrafterSpec, StepContext
from specsim.cost import Cell, CostTable
from specsim.errors import InputError
from specsim.live import profiler, profiler_cells
from specsim.live.drafters import build_drafter
from specsim.live.drafters.live_model import LiveModel
from specsim.live.drafters.target_features import Progress
from specsim.live.models import load_model
from specsim.live.paged_kv import PagedKV
from specsim.live.profiler import ProfileOptions, profile, profiling_setup
from specsim.live.profiler_cells import Bench, Grid, _fed_tokens
from specsim.live.profiler_steps import STEPS, StepBench, Watch
from specsim.live.profiler_timing import Stopwatch
from specsim.live.step import Step
from specsim.telemetry import STEP_DTYPE
from tests.live.drafters.trained import as_arm, block_net, eagle_net

OPTIONS = ProfileOptions(batches=(1, 2), contexts=(8, 16), max_tokens=32, depth=5, repeats=2)
GRID = OPTIONS.grid("cpu")


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
    rounds, timed = iter([(), (5.0,), (1.0,), (2.0,)]), []

    def end_round(_):
        seconds = [second for second in next(rounds) for _ in timed]
        timed.clear()
        return seconds

    monkeypatch.setattr(Stopwatch, "sample", lambda _, run: timed.append(run))
    monkeypatch.setattr(Stopwatch, "end_round", end_round)
    options = ProfileOptions(batches=(1, 2), contexts=(8, 16), max_tokens=8, depth=5, repeats=3)
    cells = [cell for cell in profile(target, drafters, options).cells if cell.phase in ("verify", "draft")]
    assert {cell.num_samples for cell in cells} == {3}
    assert {cell.seconds for cell in cells} == {2.0}


def test_prefill_is_charged_less_the_pass_that_a_step_pays_anyway():
    cells = [
        Cell("verify", 0.25, 1, tokens=1, context=8),
        Cell("verify", 0.5, 1, tokens=1, context=16),
        Cell("verify", 0.875, 1, tokens=2, context=8),
        Cell("verify", 7.0, 2, tokens=2, context=16),
        Cell("prefill", 1.0, tokens=16, context=8),
        Cell("prefill", 0.375, tokens=16, context=16),
    ]
    assert [cell.seconds for cell in profiler._less_plain_pass(cells)] == [0.25, 0.5, 0.875, 7.0, 0.75, 0.0]


def test_a_spent_time_budget_still_measures_every_cell_once(target, drafters):
    options = ProfileOptions(batches=(1, 2), contexts=(8, 16), max_tokens=8, depth=2, repeats=50, time_budget=0.0)
    reports = []
    table = profile(target, drafters, options, lambda done, total: reports.append((done, total)))
    assert {cell.num_samples for cell in table.cells if cell.phase in ("verify", "draft")} == {1}
    assert reports[-1] == (51 * 4 + 2, 51 * 4 + 2)
    assert reports[7] == (8, 51 * 4 + 2)  # the last visit of the first counted round


def test_a_pass_that_feeds_other_tokens_than_asked_is_caught(target, drafters, monkeypatch):
    honest = Bench._rows

    def one_token_less(bench, batch, first, tokens):
        rows, counts = honest(bench, batch, first, tokens)
        return (rows, counts) if tokens == batch else honest(bench, batch, first, tokens - 1)

    monkeypatch.setattr(Bench, "_rows", one_token_less)
    with pytest.raises(AssertionError, match=r"\[1\] tokens processed, 2 asked"):
        profile(target, drafters, OPTIONS)


def test_tokens_are_spread_evenly_and_the_rest_goes_to_the_first(target):
    grid = Grid((1, 3), (8,), 16, 5, ())
    bench = Bench(profiling_setup(target, grid), [], grid)
    rows, counts = bench._rows(3, 7, 11)
    assert (counts.tolist(), rows.counts.tolist(), rows.total) == ([4, 4, 3], [4, 4, 3], 11)
    assert (rows.slots.tolist(), rows.starts.tolist()) == ([0, 1, 2], [7, 7, 7])


def test_captured_passes_are_measured_at_every_bucket_a_step_can_fall_into():
    ladder = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128)
    grid = Grid((1, 3, 8), (8,), 128, 15, ladder)
    assert grid.tokens(1) == [1, 2, 4, 8, 16]
    assert grid.tokens(3) == [4, 8, 16, 32, 48]  # a plain step of 3 is padded to 4, a full one has 48 tokens
    assert grid.tokens(5) == [8, 16, 32, 48, 64, 96]  # a full one has 80, padded to 96
    assert grid.tokens(8) == [8, 16, 32, 48, 64, 96, 128]
    assert Grid((8,), (8,), 128, 15, (8, 64)).tokens(8) == [8, 64, 65, 128]  # above the largest: eager
    assert Grid((8,), (8,), 100, 15, (8, 64)).tokens(8) == [8, 64, 65, 100]


def test_buckets_are_a_ladder_that_ends_at_the_most_tokens_on_cuda_and_none_on_a_cpu():
    options = ProfileOptions(max_tokens=40)
    assert options.grid("cuda").buckets == (1, 2, 4, 8, 16, 32, 40)
    assert options.grid("cpu").buckets == ()
    assert ProfileOptions(max_tokens=64, buckets=(8, 64)).grid("cuda").buckets == (8, 64)


def test_requests_have_blocks_of_their_own_while_there_are_enough(target):
    grid = Grid((1, 2), (20,), 32, 5, ())
    bench = Bench(profiling_setup(target, grid), [], grid)
    bench.place(2)
    used = bench.setup.pool.device_table()[:, : bench.setup.pool.blocks_for(grid.longest(2))]
    assert len(set(used.flatten().tolist())) == used.numel()
    assert 0 not in used
    assert not bench.shares_blocks
    bench.leave()
    assert not bench.setup.pool.device_table().any()


def test_requests_take_turns_on_blocks_where_memory_is_short_and_the_table_says_so(target, drafters, monkeypatch):
    each = PagedKV.bytes_per_block(target.model.config, profiler.BLOCK_SIZE, torch.float32)
    monkeypatch.setattr(profiler, "CPU_KV_BYTES", 9 * each)
    options = ProfileOptions(batches=(1, 4), contexts=(8, 60), max_tokens=16, depth=2, repeats=1)
    table = profile(target, drafters, options)
    assert any("shared blocks" in remark for remark in table.meta.remarks)
    assert (table.step_cost(None, 4, 0, 60).seconds > 0).all()


def test_host_and_plan_are_what_real_steps_take_beyond_drafting_and_the_pass(target):
    """Steps of known seconds: what is left is exact."""
    cells = [Cell("verify", 0.25 * tokens, 2, tokens=tokens, context=8) for tokens in (2, 12)]
    meta = profiler._meta(target, OPTIONS, Bench(profiling_setup(target, GRID), [], GRID))
    watch = Watch(2, CostTable.from_cells(meta, cells, extrapolate=True))
    row = np.zeros((), STEP_DTYPE)
    row["batch"], row["num_verified"] = 2, 4
    row["draft_seconds"], row["verify_seconds"], row["host_seconds"], row["plan_seconds"] = 10.0, 1.5, 0.5, 0.25
    context = StepContext(0, 0.0, 2, 0, 8.0, np.random.default_rng(0))
    step = Step(0.0, np.arange(2), [], 0, context=context)
    row["num_verified"] = 0
    watch.on_step(row, step, None)
    assert watch.beside_the_table == [1.5 + 0.5 + 0.25 - 0.5]  # less the pass over 2 tokens in the table
    assert watch.beside_the_pass == [0.5 + 0.25]  # less the pass by the step's own clock
    row["prefill_tokens"] = 3
    watch.on_step(row, step, None)
    row["prefill_tokens"], row["batch"] = 0, 1
    watch.on_step(row, step, None)
    assert len(watch.beside_the_pass) == len(watch.beside_the_table) == 1
    watch.forget(3)
    assert len(watch.beside_the_pass) == 1  # something is left where there is nothing but the warm-up
    watch.forget(0)
    row["batch"] = 2
    watch.on_step(row, step, None)
    watch.forget(1)
    assert watch.beside_the_pass == [0.5 + 0.25]


@pytest.mark.parametrize(("device", "host"), [("cpu", 2.0), ("cuda", 3.0)])
def test_what_is_charged_to_drafting_is_the_difference_of_two_steps_by_their_own_clocks(monkeypatch, device, host):
    """The table's passes may be wrong by more than planning takes, in steps that draft and in those that do not."""

    def steps_of(_, batch, policy):
        watch = Watch(batch, None)
        plain = policy == "autoregressive"
        watch.beside_the_pass = [1.0, 2.0, 9.0] if plain else [2.25, 2.5]
        watch.beside_the_table = [3.0] if plain else [0.0]
        return watch

    monkeypatch.setattr(StepBench, "_steps_of", steps_of)
    bench = StepBench.__new__(StepBench)
    bench._setup = SimpleNamespace(device=torch.device(device))
    found = {cell.phase: (cell.seconds, cell.batch) for cell in bench.cells(4)}
    assert found == {"host": (host, 4), "plan": (0.375, 4)}


def test_a_table_prices_planning_and_the_host_at_every_batch(target, drafters):
    cells = profile(target, drafters, OPTIONS).cells
    assert {(cell.phase, cell.batch) for cell in cells if cell.phase in ("host", "plan")} == {
        (phase, batch) for phase in ("host", "plan") for batch in (1, 2)
    }
    assert all(cell.num_samples == STEPS["cpu"] for cell in cells if cell.phase in ("host", "plan"))
    assert sum(cell.seconds for cell in cells if cell.phase == "host") > 0


def test_a_drafter_with_a_cache_of_its_own_is_charged_for_what_it_missed(target, make_model):
    smaller = replace(target, name="smaller", model=make_model("float32", num_hidden_layers=1))
    table = profile(target, [lambda setup: LiveModel(smaller, setup, OPTIONS.depth)], OPTIONS)
    switch = [cell for cell in table.cells if cell.phase == "switch"]
    assert [(cell.drafter, cell.tokens) for cell in switch] == [("smaller", 16)]
    assert switch[0].seconds > 0
    drafts = {(cell.batch, cell.depth, cell.context) for cell in table.cells if cell.phase == "draft"}
    assert drafts == {(batch, depth, context) for batch in (1, 2) for depth in (1, 2, 5) for context in (8, 16)}


@pytest.mark.parametrize("net", [eagle_net, block_net])
@pytest.mark.parametrize(("runs", "context", "gained"), [(1, 16, [2]), (3, 16, [2, 2, 2]), (3, 4, [0, 1, 2])])
def test_a_trained_drafter_takes_in_what_each_request_gained_since_its_last_draft(
    target, monkeypatch, net, runs, context, gained
):
    monkeypatch.setattr(profiler_cells, "runs_of_a_sample", lambda device: runs)
    taken, missing = [], Progress.missing

    def watched(progress, batch):
        found = missing(progress, batch)
        taken.append((batch.lengths.tolist(), found[1].tolist()))
        return found

    setup = profiling_setup(target, GRID)
    drafter = as_arm(net(target))(setup, OPTIONS.depth)
    monkeypatch.setattr(Progress, "missing", watched)
    bench = Bench(setup, [drafter], GRID)
    bench.place(2)
    depths = []
    with torch.inference_mode():
        for job in bench._drafts(drafter, 2, context):
            taken.clear()
            for _ in range(runs):
                job.run()
            lengths = [max(1, context - 2 * left) for left in range(runs - 1, -1, -1)]
            assert taken == [([length] * 2, [more] * 2) for length, more in zip(lengths, gained, strict=True)]
            depths.append(job.cell.depth)
    assert depths == [1, 2, 5]


def test_a_smaller_model_computes_one_token_a_draft_as_in_a_step(target, make_model):
    smaller = replace(target, name="smaller", model=make_model("float32", num_hidden_layers=1))
    setup = profiling_setup(target, GRID)
    drafter = LiveModel(smaller, setup, OPTIONS.depth)
    bench = Bench(setup, [drafter], GRID)
    bench.place(2)
    with torch.inference_mode():
        for job in bench._drafts(drafter, 2, 16):
            with _fed_tokens(smaller.model) as fed:
                job.run()
            # Of two tokens gained the first is its last draft, fed already unless it drafted only that one.
            assert fed == [4 if job.cell.depth == 1 else 2, *[2] * (job.cell.depth - 1)]


def test_catching_up_begins_from_nothing_each_time_it_is_timed(target, make_model):
    smaller = replace(target, name="smaller", model=make_model("float32", num_hidden_layers=1))
    setup = profiling_setup(target, GRID)
    drafter = LiveModel(smaller, setup, OPTIONS.depth)
    bench = Bench(setup, [drafter], GRID)
    bench.place(1)
    job = bench._switch(drafter, 16)
    for _ in range(2):
        with _fed_tokens(smaller.model) as fed:
            job.run()
        assert sum(fed) == 16


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_the_buckets_are_the_capture_sizes_and_every_verify_cell_is_one(model_folder):
    target = load_model(str(model_folder), dtype="bfloat16", device="cuda")
    options = ProfileOptions(batches=(1, 2), contexts=(8,), max_tokens=16, depth=3, repeats=2)
    table = profile(target, [build_drafter("exit2", target, 3)], options)
    assert table.meta.capture_sizes == (1, 2, 4, 8, 16)
    verify = {(cell.batch, cell.tokens) for cell in table.cells if cell.phase == "verify"}
    assert verify == {(1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (2, 8)}


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
        ({"buckets": (8, 8)}, "buckets 8, 8: must be rising"),
        ({"buckets": (8, 16)}, "buckets on 'cpu': only on cuda"),
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


def test_an_interrupt_leaves_no_half_table(model_folder, tmp_path, capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(StepBench, "cells", interrupt)
    assert run(arguments(model_folder, tmp_path / "mine", "--batches", "1")) == 130
    said = "specsim: interrupted: nothing was written; a table is, once every cell was measured"
    assert capsys.readouterr().err.splitlines()[-1] == said
    assert not (tmp_path / "mine").exists()


def test_a_shape_without_weights_is_profiled(model_folder, tmp_path, capsys):
    out = tmp_path / "shape"
    command = arguments(model_folder / "config.json", out, "--load-format", "dummy", "--batches", "1")
    assert run(command) == 0
    table = CostTable.open(out)
    assert table.meta.model == "tiny-llama"
    assert "random weights of shape tiny-llama" in table.meta.method


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--buckets", "1,2"], "only on cuda"),
        (["--load-format", "none"], "must be one of auto, dummy"),
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
