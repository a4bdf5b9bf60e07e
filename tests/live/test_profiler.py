"""Profiling: every cell that a simulator asks for, each the median of what was really run."""

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from specsim.cli.main import run
from specsim.core import DrafterSpec, StepContext, StepSeconds
from specsim.cost import Cell, CostTable
from specsim.cost.examples import example_meta, linear_table
from specsim.cost.table import CHANGES
from specsim.errors import InputError
from specsim.live import profiler, profiler_cells, profiler_steps
from specsim.live.committer import Committer
from specsim.live.drafters import build_drafter
from specsim.live.drafters.live_model import LiveModel
from specsim.live.drafters.target_features import Progress
from specsim.live.models import load_model
from specsim.live.paged_kv import PagedKV
from specsim.live.profiler import ProfileOptions, profile, profiling_setup
from specsim.live.profiler_cells import PROMPT_TOKENS, Bench, Grid, _fed_tokens
from specsim.live.profiler_steps import STEPS, WARM_UP_STEPS, WAVES, StepBench, Watch
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
    assert watch.with_drafting == [10.0 + 1.5 + 0.5 + 0.25 - 0.5]  # the table's pass, and drafting is counted in
    row["prefill_tokens"] = 3
    watch.on_step(row, step, None)
    row["prefill_tokens"], row["batch"] = 0, 1
    watch.on_step(row, step, None)
    assert len(watch.beside_the_pass) == len(watch.beside_the_table) == len(watch.with_drafting) == 1
    watch.forget(3)
    assert (
        len(watch.beside_the_pass) == len(watch.with_drafting) == 1
    )  # something is left where there is nothing but the warm-up
    watch.forget(0)
    row["batch"], row["draft_seconds"] = 2, 20.0
    watch.on_step(row, step, None)
    watch.forget(1)
    assert watch.beside_the_pass == [0.5 + 0.25]
    assert watch.with_drafting == [20.0 + 1.5 + 0.5 + 0.25 - 0.5]


class MadeUpRun:
    """Stands for an engine that runs; every number of its steps is written down.

    told  gets what it is asked for
    """

    def __init__(self, batch, policy, drafting, told):
        self.batch, self.policy, self.drafting, self.told, self.ahead = batch, policy, drafting, told, True
        self.engine = SimpleNamespace(launch_ahead=self.launch_ahead)

    def launch_ahead(self, on):
        self.ahead = on

    def tell(self, *asked):
        self.told.append((self.policy, self.drafting, "ahead" if self.ahead else "alone", *asked))

    def steady(self, warm_up, steps):
        self.tell(warm_up, steps)
        watch = Watch(self.batch, None)
        # beside_the_pass, beside_the_table, with_drafting
        seconds = {
            ("autoregressive", "free", True): ([1.0, 2.0, 9.0], [3.0, 2.5, 3.5], [3.0, 2.5, 3.5]),
            ("autoregressive", "free", False): ([50.0], [50.0], [3.25, 3.5, 9.0]),
            ("dcut", "free", True): ([4.0, 3.0, 9.0, 2.5], [50.0], [50.0]),
            ("dcut", "layers:8", True): ([2.25, 2.5], [0.0, 0.0], [6.0, 5.0]),
            ("dcut", "layers:8", False): ([50.0], [50.0], [7.0]),
        }[self.policy, self.drafting, self.ahead]
        watch.beside_the_pass, watch.beside_the_table, watch.with_drafting = seconds
        return watch

    def waves(self, size, count):
        self.tell(size, count)
        return [(1.25, 16), (9.0, 16), (0.75, 16)] if size == 1 else [(4.0, 128), (3.0, 64)]


def bench_of_made_up_runs(monkeypatch, device, told=None, run=MadeUpRun, whole=0.008):
    """A bench that runs nothing, whose table charges `whole` for a pass and a second for 64 prompt tokens."""
    told = [] if told is None else told

    @contextmanager
    def running(_, batch, policy, drafting="free"):
        yield run(batch, policy, drafting, told)

    monkeypatch.setattr(StepBench, "_running", running)
    monkeypatch.setattr(profiler_steps, "Recording", lambda trace, _: SimpleNamespace(trace=trace))
    setup = SimpleNamespace(
        device=torch.device(device),
        state=SimpleNamespace(history=range(128)),
        max_model_len=999,
        block_size=16,
        pool=SimpleNamespace(num_blocks=128 * 20),
        target=SimpleNamespace(num_layers=32),
    )
    cells = [Cell("verify", whole, 1, tokens=1), Cell("prefill", 2.0, tokens=128)]
    return StepBench(setup, CostTable.from_cells(example_meta("passes"), cells), 16, 5)


@pytest.mark.parametrize(
    ("device", "host", "plan"),
    [("cpu", 2.0, Cell("plan", 1.5, 4, num_samples=4)), ("cuda", 3.0, Cell("plan", 0.375, 4, num_samples=2))],
)
def test_what_is_charged_to_drafting_is_the_difference_of_two_steps_by_their_own_clocks(
    monkeypatch, device, host, plan
):
    """The table's passes may be wrong by more than planning takes, in steps that draft and in those that do not.

    On CUDA drafting is long enough to hide the host.
    """
    cells = bench_of_made_up_runs(monkeypatch, device).cells(4)
    assert cells[:2] == [Cell("host", host, 4, num_samples=3), plan]
    assert not {cell.phase for cell in cells[2:]} & {"host", "plan"}


def test_being_late_is_what_the_same_steps_take_longer_and_joining_what_is_left_of_waves_beside_the_prompts(
    monkeypatch,
):
    cells = bench_of_made_up_runs(monkeypatch, "cuda").cells(128)[2:]
    assert cells == [
        Cell("late", 3.5 - 3.0, 128, num_samples=3),
        Cell("join", 1.25 - 0.25, 128, tokens=1, num_samples=3),
        Cell("join", 2.0, 128, tokens=8, num_samples=2),  # 4 less 128 tokens' 2, and 3 less 64 tokens' 1
        Cell("late_draft", 7.0 - 5.5, 128, num_samples=1),
        Cell("hidden", 3.5 - 2.375, 128, num_samples=4),  # by the steps' own clocks
    ]


def test_steps_are_measured_launched_ahead_first_and_who_joins_where_nothing_is(monkeypatch):
    told, counts = [], (WARM_UP_STEPS["cuda"], STEPS["cuda"])
    bench_of_made_up_runs(monkeypatch, "cuda", told).cells(128)
    assert told == [
        ("autoregressive", "free", "ahead", *counts),
        ("autoregressive", "free", "alone", *counts),
        ("autoregressive", "free", "alone", 1, WAVES),
        ("autoregressive", "free", "alone", 8, WAVES),
        ("dcut", "free", "ahead", *counts),
        ("dcut", "layers:8", "ahead", *counts),
        ("dcut", "layers:8", "alone", *counts),
    ]


@pytest.mark.parametrize(
    ("whole", "layers"), [(0.008, 8), (0.0079, 9), (0.064, 1), (9.0, 1), (0.002, 32), (0.0001, 32), (1e-9, 32)]
)
def test_drafting_that_hides_the_host_takes_two_milliseconds_or_as_much_as_the_target(monkeypatch, whole, layers):
    assert bench_of_made_up_runs(monkeypatch, "cuda", whole=whole)._long_drafting(4) == f"layers:{layers}"


@pytest.mark.parametrize(("batch", "sizes"), [(1, [1]), (2, [1, 2]), (31, [1, 2]), (32, [1, 2]), (128, [1, 8])])
def test_one_request_joins_at_a_time_or_one_of_sixteen_and_two_at_least(monkeypatch, batch, sizes):
    cells = bench_of_made_up_runs(monkeypatch, "cuda").cells(batch)
    assert [(cell.batch, cell.tokens) for cell in cells if cell.phase == "join"] == [(batch, size) for size in sizes]


def test_what_seems_to_take_less_than_nothing_takes_nothing(monkeypatch):
    class Backwards(MadeUpRun):
        def steady(self, warm_up, steps):
            watch = super().steady(warm_up, steps)
            for taken in (watch.beside_the_pass, watch.beside_the_table, watch.with_drafting):
                taken[:] = [-second for second in taken]
            return watch

        def waves(self, size, count):
            return [(0.125, 16)]

    cells = bench_of_made_up_runs(monkeypatch, "cuda", run=Backwards).cells(4)
    assert {cell.phase: cell.seconds for cell in cells} == dict.fromkeys(("host", "plan", "hidden", *CHANGES), 0.0)


@pytest.mark.parametrize(
    ("device", "measured"), [("cpu", []), ("cuda", ["late", "join", "join", "late_draft", "hidden"])]
)
def test_steps_whose_requests_change_are_measured_on_cuda_alone(monkeypatch, device, measured):
    told = []
    cells = bench_of_made_up_runs(monkeypatch, device, told).cells(4)
    assert [cell.phase for cell in cells] == ["host", "plan", *measured]
    assert any(how == "alone" for _, _, how, *_ in told) == bool(measured)


LONG = ProfileOptions(batches=(1, 4), contexts=(24,), max_tokens=232, depth=5)
"""Outputs are so long that nobody ends unasked, and prompts longer than those of who joins."""

ONE_A_BATCH = ("host", "plan", "hidden", "late", "late_draft")
"""Phases of which a whole step gives one cell a batch."""


@pytest.fixture
def step_bench(target):
    grid = LONG.grid("cpu")
    return StepBench(profiling_setup(target, grid), linear_table(1e-2, 1e-3), grid.contexts[0], grid.depth)


def test_steps_whose_requests_change_are_measured_at_every_batch_and_make_a_table(step_bench, monkeypatch):
    monkeypatch.setattr(profiler_steps, "SHARE_THAT_JOINS", 2)
    step_bench.measures_changes = True
    cells = [cell for batch in (1, 4) for cell in step_bench.cells(batch)]
    found = {(cell.phase, cell.batch, cell.tokens, cell.num_samples) for cell in cells}
    assert found == {
        *((phase, batch, None, STEPS["cpu"]) for phase in ONE_A_BATCH for batch in (1, 4)),
        *(("join", batch, size, WAVES) for batch, size in ((1, 1), (4, 1), (4, 2))),
    }
    passes = linear_table(1e-2, 1e-3)
    known = [cell for cell in passes.cells if cell.phase not in {cell.phase for cell in cells}]
    table = CostTable.from_cells(passes.meta, [*known, *cells])
    asked = {"late": table.late_seconds, "late_draft": partial(table.late_seconds, drafting=inf)}
    for cell in cells:
        if cell.phase == "join":
            assert table.join_seconds(cell.batch, cell.tokens) == cell.seconds
        elif cell.phase in asked:
            assert asked[cell.phase](cell.batch) == cell.seconds


CROWDED = ProfileOptions(batches=(1, 8), contexts=(16,), max_tokens=32, depth=3)


@pytest.mark.parametrize("blocks", [16, 24, None])
def test_whole_steps_end_where_memory_is_short_or_only_short_contexts_are_measured(target, monkeypatch, blocks):
    """All requests run at once, with shorter prompts where it must be: the batch was never full again otherwise."""
    grid = CROWDED.grid("cpu")
    if blocks is not None:
        each = PagedKV.bytes_per_block(target.model.config, profiler.BLOCK_SIZE, torch.float32)
        monkeypatch.setattr(profiler, "CPU_KV_BYTES", blocks * each)
    setup = profiling_setup(target, grid)
    assert setup.pool.num_blocks == (blocks or 8 * 4)  # of 52 tokens each: the longest request's, and lookahead
    bench = StepBench(setup, linear_table(1e-2, 1e-3), grid.contexts[0], grid.depth)
    for policy in ("autoregressive", "dcut"):
        with bench._running(8, policy) as run, monkeypatch.context() as patched:
            patched.setattr(run.engine, "step", at_most(run.engine.step, 200))
            assert len(run.steady(2, 9).beside_the_pass) >= 9
            if policy == "autoregressive":
                run.waves(2, 2)
            assert run.engine.tally.totals.num_preemptions == 0


def at_most(step, times):
    """A step that can be taken so many times."""
    left = iter(range(times))

    def counted(*given, **keywords):
        assert next(left, None) is not None, f"still not full after {times} steps"
        return step(*given, **keywords)

    return counted


def test_memory_that_holds_no_tokens_of_each_request_is_told_in_one_line(target, monkeypatch):
    each = PagedKV.bytes_per_block(target.model.config, profiler.BLOCK_SIZE, torch.float32)
    monkeypatch.setattr(profiler, "CPU_KV_BYTES", 7 * each)
    grid = CROWDED.grid("cpu")
    with pytest.raises(InputError, match="the KV cache holds 0 tokens of each of 8 requests, and steps 3 drafts deep"):
        StepBench(profiling_setup(target, grid), linear_table(1e-2, 1e-3), grid.contexts[0], grid.depth)


@pytest.mark.parametrize("policy", ["autoregressive", "dcut"])
def test_as_many_steady_steps_are_taken_as_asked_and_the_warm_up_is_forgotten(step_bench, policy):
    with step_bench._running(4, policy) as run:
        for _ in range(2):
            watch = run.steady(2, 3)
            assert [len(taken) for taken in (watch.beside_the_pass, watch.with_drafting)] == [3, 3]
            assert watch not in run.engine.observers
        rows = run.engine.tally.steps.table()
    assert set(rows["depth"][rows["batch"] == 4].tolist()) == {LONG.depth if policy == "dcut" else 0}


def test_an_engine_that_is_measured_drafts_as_it_is_told(step_bench):
    for asked, cost in (((), "free"), (("layers:1",), "layers:1")):
        with step_bench._running(1, "dcut", *asked) as run:
            assert [drafter.cost for drafter in run.engine.drafters] == [cost]


@pytest.mark.parametrize("policy", ["autoregressive", "dcut"])
def test_beginnings_are_launched_ahead_as_long_as_an_engine_is_told_so(step_bench, policy):
    with step_bench._running(4, policy) as run:
        ahead, taken = run.engine._stepper.ahead, []
        for on in (False, True, False):  # on a CPU launching is computing, but all the rest is there
            run.engine.launch_ahead(on)
            run.steady(0, 12)
            taken.append(ahead.num_taken)
    assert taken[0] == 0
    assert taken[1] > 0
    assert taken[2] <= taken[1] + 1  # the last beginning was launched already


@pytest.mark.parametrize(("batch", "size"), [(1, 1), (4, 1), (4, 3), (4, 4)])
def test_in_a_wave_so_many_requests_end_and_as_many_with_short_prompts_join(step_bench, batch, size):
    with step_bench._running(batch, "autoregressive") as run:
        run.steady(0, 1)
        engine, submit, prompts = run.engine, run.engine.submit, []

        def counted(prompt, *more, **keywords):
            prompts.append(len(prompt))
            return submit(prompt, *more, **keywords)

        engine.submit = counted
        engine.settle()
        for wave in range(1, 4):
            before, running = len(engine.tally.steps.table()), engine.scheduler.running.copy()
            ((_, tokens),) = run.waves(size, 1)
            rows = engine.tally.steps.table()[before:]
            assert rows["batch"].tolist() == [batch] * 5 + [batch - size, batch]
            assert rows["prefill_tokens"].tolist() == [0] * 5 + [size * PROMPT_TOKENS[0], 0]
            assert tokens == size * PROMPT_TOKENS[0]
            assert len(engine.ended) == len(prompts) == wave * size
            assert engine.scheduler.running[: batch - size] == running[size:]  # who runs longest ends first
        assert set(prompts) == {PROMPT_TOKENS[0]}
        state = engine.scheduler.slots
        state.limit[engine.scheduler.decoding[0]] = 1  # ends in the next step, outside any wave
        engine.step()
        assert prompts[-1] == LONG.contexts[0]


def test_a_wave_begins_once_everybody_decodes(step_bench):
    with step_bench._running(4, "autoregressive") as run:  # nobody has been admitted yet
        ((_, tokens),) = run.waves(1, 1)
        rows = run.engine.tally.steps.table()
    assert rows["batch"].tolist() == [0] + [4] * 5 + [3, 4]
    assert tokens == PROMPT_TOKENS[0]


def test_a_wave_is_the_two_steps_after_its_end_less_two_of_the_four_before(step_bench, monkeypatch):
    """Seconds that are written down for every step of three waves."""
    waves = [
        # the first step also holds what came between the waves
        (9.0, 1.0, 2.0, 4.0, 8.0, 20.0, 30.0),  # median of 1, 2, 4 and 8: 3
        (64.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0),
        (0.0, 2.0, 1.0, 2.0, 3.0, 1.0, 0.5),
    ]
    seconds = iter([second for wave in waves for second in wave])

    def written_down(*_):
        whole = next(seconds)  # shared out over phases, all of which count
        return StepSeconds(draft=whole / 4, verify=whole / 4, host=whole / 8, prefill=whole / 8, switch=whole / 4)

    with step_bench._running(4, "autoregressive") as run:
        run.steady(0, 1)
        with monkeypatch.context() as patched:
            patched.setattr(Committer, "_seconds", written_down)
            found = run.waves(2, 3)
    assert found == [(20.0 + 30.0 - 2 * 3.0, 32), (0.0, 32), (1.0 + 0.5 - 2 * 2.0, 32)]
    assert next(seconds, None) is None


def test_an_engine_that_is_given_up_leaves_the_slots_to_the_next_one(step_bench):
    def run_and_raise():
        with step_bench._running(4, "dcut") as run:
            run.steady(0, 1)
            engines.append(run.engine)
            raise KeyError("given up")

    engines = []
    with pytest.raises(KeyError, match="given up"):
        run_and_raise()
    assert not engines[0].scheduler.has_work()
    with step_bench._running(1, "autoregressive") as run:
        assert len(run.steady(0, 2).beside_the_pass) == 2


def test_a_table_prices_planning_and_the_host_at_every_batch(target, drafters):
    cells = profile(target, drafters, OPTIONS).cells
    assert {(cell.phase, cell.batch) for cell in cells if cell.phase in ("host", "plan")} == {
        (phase, batch) for phase in ("host", "plan") for batch in (1, 2)
    }
    assert all(cell.num_samples == STEPS["cpu"] for cell in cells if cell.phase in ("host", "plan"))
    assert sum(cell.seconds for cell in cells if cell.phase == "host") > 0
    assert {cell.phase for cell in cells} == {"verify", "draft", "prefill", "host", "plan"}  # on a CPU no changes


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
        ({"buckets": (8, 64)}, "bucket 64 is above the 32 tokens of max_tokens"),
        ({"buckets": (8, 16)}, "buckets on 'cpu': only on cuda"),
        ({"contexts": (8, 250)}, "context 250 with 32 more tokens is beyond the 256 positions of 'tiny'"),
    ],
)
def test_options_that_do_not_fit_are_refused(target, drafters, changed, told):
    options = {"batches": (1, 2), "contexts": (8, 16), "max_tokens": 32, "depth": 5} | changed
    with pytest.raises(InputError, match=told):
        profile(target, drafters, ProfileOptions(**options))


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
        (["--batches", "2"], "batches start at 2: must start at 1, where prompts are timed"),
        (["--batches", "1,32"], "batch 32 needs more than 16 tokens: raise max_tokens"),
        (["--contexts", "16,8"], "contexts 16, 8: must be rising integers from 1"),
        (["--buckets", "0,8"], "buckets 0, 8: must be rising integers from 1"),
        (["--drafters", "ngram, ngram"], "--drafters ngram, ngram: give each once"),
    ],
)
def test_what_no_model_can_be_measured_with_is_refused_before_one_is_loaded(
    model_folder, tmp_path, capsys, monkeypatch, more, told
):
    monkeypatch.setattr("specsim.live.models.load_model", lambda *_, **__: pytest.fail("the model was loaded"))
    assert run(arguments(model_folder, tmp_path / "t", *more)) == 2
    assert capsys.readouterr().err == f"specsim: error: {told}\n"


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
