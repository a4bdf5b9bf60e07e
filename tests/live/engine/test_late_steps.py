"""The simulator charges a step for being late exactly where the engine had launched nothing of it ahead."""

import pytest

from specsim.cost import Cell, CostTable
from specsim.live.sampling import SamplingParams
from specsim.live.trajectory import TrajectoryRecorder
from specsim.policies.build import build_controller
from specsim.serving import EngineConfig
from specsim.serving.foresight import UNKNOWN_GAIN
from specsim.sim.simulate import simulate
from specsim.sim.workload import ClosedLoop
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace
from tests.live.engine.engines import build_engine, some_prompts
from tests.live.engine.test_ahead import lookup
from tests.live.parity_runs import DEPTH, LIMITS, TABLE, take_again

LATE, LATE_DRAFT, JOIN = 9e-4, 1e-4, 1.0
"""Seconds that tell the three apart. A pass takes a millisecond and more, so that launching it ahead nearly always
pays, and drafting two tenths of one: what was launched for nothing takes longer than being late."""

ROOMY = {"num_kv_blocks": 200, "max_num_batched_tokens": 200}

PROMPTS = some_prompts(lengths=(5, 17, 1, 9, 12, 3, 8, 8))


def with_changes(late=LATE, join=JOIN):
    """The tests' table, with cells of steps whose requests change."""
    cells = [Cell("late", late, 1), Cell("late_draft", LATE_DRAFT, 1), Cell("join", join, 1, tokens=1)]
    return CostTable.from_cells(TABLE.meta, [*TABLE.cells, *cells])


class Flags:
    """What the engine launched ahead for each step: it was taken, dropped, or there was nothing."""

    def __init__(self, engine):
        self.ahead, self.of = engine._stepper.ahead, []
        self.ahead.enabled = True

    def step(self, engine):
        before = self.ahead.num_taken, self.ahead.num_dropped
        worked = engine.step(settled=False)
        taken, dropped = self.ahead.num_taken - before[0], self.ahead.num_dropped - before[1]
        if worked:
            self.of.append("taken" if taken else "dropped" if dropped else "nothing")
        return worked


def play(target, spec, folder, params, cost, **limits):
    """Requests that come and go, recorded; what was launched ahead of each step."""
    engine = build_engine(target, spec, (lookup, "exit3"), depth=DEPTH, cost=cost, **LIMITS | ROOMY | limits)
    flags = Flags(engine)
    with TrajectoryRecorder(folder, engine):
        for prompt, own in zip(PROMPTS[:5], params, strict=False):
            engine.submit(prompt, own)
        for number in range(400):
            if number in (9, 23, 24):
                engine.submit(PROMPTS[5 + number % 3], params[number % 5])
            if not flags.step(engine) and number > 24:
                break
        engine.settle()
    return flags.of


def extras(folder, cost):
    """Seconds of the host in each step, taken again by the simulator, that are not of a usual step."""
    steps, difference = take_again(folder)
    assert difference is None
    usual = [cost.phases(None, max(step.batch, 1), 0, 0, 0.0).host for step in steps]
    return [step.table_seconds.host - host for step, host in zip(steps, usual, strict=True)]


def said(seconds, drafts, joined):
    """What a step was charged for, read off its seconds."""
    rest, late = seconds - JOIN * joined, LATE_DRAFT if drafts else LATE
    return "nothing" if abs(rest - late) < 1e-9 else "taken" if abs(rest) < 1e-9 else "dropped"


BY_LENGTH = [SamplingParams(length) for length in (30, 9, 25, 14, 22)]
BY_STOP = [SamplingParams(40, stop=("a",)) for _ in range(5)]


@pytest.mark.parametrize("params", [BY_LENGTH, BY_STOP], ids=["length", "stop"])
@pytest.mark.parametrize("spec", ["autoregressive", "fixed_depth@exit3", "dcut@exit3", "dcut@ucb1", "adaspec@exit3"])
def test_a_step_is_late_where_nothing_was_launched_ahead(stopping, tmp_path, spec, params):
    cost = with_changes()
    flags = play(stopping, spec, tmp_path / "run", params, cost)
    steps, _ = take_again(tmp_path / "run")
    late = extras(tmp_path / "run", cost)
    joined = [int(seconds / JOIN) for seconds in late]
    found = [said(seconds, step.depth > 0, join) for seconds, step, join in zip(late, steps, joined, strict=True)]
    assert list(enumerate(found)) == list(enumerate(flags))
    assert sum(joined) == 8
    assert "nothing" in found
    if spec not in ("adaspec@exit3", "dcut@ucb1"):  # one may stop drafting anywhere, the other changes drafters
        assert "taken" in found


@pytest.mark.parametrize("spec", ["autoregressive", "fixed_depth@exit3"])
def test_what_was_launched_for_nobody_is_charged_where_the_next_step_computes_prompts_alone(stopping, tmp_path, spec):
    """The only request ends by surprise, and the next one's prompt waits for what was launched after it."""
    cost = with_changes()
    flags = play(stopping, spec, tmp_path / "run", BY_STOP, cost, max_num_seqs=1)
    steps, _ = take_again(tmp_path / "run")
    late = extras(tmp_path / "run", cost)
    alone = [number for number, step in enumerate(steps) if not step.batch]
    assert len(alone) == 8
    assert "dropped" in {flags[number] for number in alone}
    for number in alone:
        wasted = 0.0
        if flags[number] == "dropped" and spec == "autoregressive":
            wasted = steps[number - 1].table_seconds.verify
        elif flags[number] == "dropped":
            wasted = steps[number - 1].seconds.draft
        assert late[number] == pytest.approx(JOIN + max(LATE, wasted), abs=1e-9), (number, flags[number])


def test_a_pass_is_not_launched_ahead_where_surprises_cost_more_than_it_gains(stopping, tmp_path):
    """Both close the gate after the same surprise, and open it again."""
    cost = with_changes(late=2e-5)
    assert cost.gain_of_launching_ahead(3) < UNKNOWN_GAIN
    flags = play(stopping, "autoregressive", tmp_path / "run", BY_LENGTH, cost)
    late = [seconds - int(seconds) for seconds in extras(tmp_path / "run", cost)]
    found = ["nothing" if abs(own - 2e-5) < 1e-9 else "taken" if abs(own) < 1e-9 else "dropped" for own in late]
    assert found == flags
    always = play(stopping, "autoregressive", tmp_path / "other", BY_LENGTH, with_changes())
    assert flags.count("taken") < always.count("taken")


def test_a_table_without_such_cells_charges_nothing(stopping, tmp_path):
    play(stopping, "dcut@exit3", tmp_path / "run", BY_LENGTH, TABLE)
    assert not any(extras(tmp_path / "run", TABLE))


def test_where_prompts_are_excluded_nobody_joins_and_nothing_is_late():
    drafter = SyntheticDrafter("ngram", mean_acceptance_length=2.0, max_depth=DEPTH)
    trace = SyntheticTrace(SyntheticConfig("made-up", (drafter,), 8, num_output_tokens=(16, 24)))
    cost, runs = with_changes(), {}
    controller = build_controller("dcut", trace.drafters)
    for prefill in ("excluded", "charged"):
        engine = EngineConfig(3, prefill=prefill)
        runs[prefill] = simulate(trace, cost, controller, engine, ClosedLoop(3, 12), record_steps=True)
    assert runs["excluded"].steps["host_seconds"].max() == 0.0
    assert runs["charged"].steps["host_seconds"].sum() > 12 * JOIN
