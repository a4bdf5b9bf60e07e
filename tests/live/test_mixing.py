"""Several drafters in one live step: each drafts for its own requests, and the step is priced as simulated."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.core import Draft, Order
from specsim.cost.examples import staircase_table
from specsim.live.drafters.ngram import Ngram
from specsim.live.greedy import decode_greedy
from specsim.live.sampling import SamplingParams
from specsim.policies.build import build_controller
from specsim.sim.mixed import Mixer as SimulatedMixer
from tests.live.drafters.scripted import as_drafter, check_drafts, plain, scripted_engine, wobbled
from tests.live.engine.engines import build_engine, early_exit, generate, ngram, refusal, some_prompts
from tests.live.parity_runs import record, take_again

PROMPTS = some_prompts()
NAMES = ("ngram", "exit2", "wobbled")
DEPTHS = (5, 2, 4)
DRAFTING = dict(zip(NAMES, (1e-4, 7e-4, 3e-4), strict=True))
PRICES = staircase_table({2: 1e-3, 4: 1.1e-3, 8: 1.6e-3, 16: 3e-3, 32: 8e-3}, (1, 2, 3, 4), DRAFTING, 5)


def of_depth(make, depth):
    return lambda setup, _: make(setup, depth)


@pytest.fixture(scope="module")
def target(make_target):
    return make_target(eos_token_id=None)


@pytest.fixture(scope="module")
def near(target):
    return wobbled(target)


@pytest.fixture(scope="module")
def near_plain(near):
    return plain(near)


@pytest.fixture(scope="module")
def expected(target):
    copy = replace(target, model=plain(target))
    return [decode_greedy(copy, [prompt], 20)[0].token_ids.tolist() for prompt in PROMPTS]


def makers(near):
    made = (ngram, early_exit(2), as_drafter(near))
    return [of_depth(make, depth) for make, depth in zip(made, DEPTHS, strict=True)]


def check_rows(watcher, near_plain):
    """Every request's drafts are its own drafter's, no deeper than that goes; how many steps were mixed."""
    mixed = 0
    for step, _, texts in watcher.steps:
        if step.order.arms is None:
            continue
        mixed += 1
        assert step.seen.drafter.name.count("+") == len(set(step.order.arms.tolist())) - 1
        for row, (arm, text) in enumerate(zip(step.order.arms.tolist(), texts, strict=True)):
            count = int(step.seen.num_drafts[row])
            assert count <= min(DEPTHS[arm], step.order.depth)
            assert (step.seen.scores["drawn_prob"][row, :count] > 0).all()
            assert not step.seen.scores["drawn_prob"][row, count:].any()
            if arm == 0:
                tokens, scores = Ngram(5).propose(np.array(text))
                assert step.tokens[row, :count].tolist() == tokens[:count].tolist()
                assert count == min(len(tokens), step.order.depth)
                assert step.seen.scores["drawn_prob"][row, :count].tolist() == np.float32(scores[:count]).tolist()
    check_drafts(watcher, near_plain, arm=2)
    return mixed


def test_each_drafter_drafts_for_its_own_requests_and_all_are_verified_at_once(target, near, near_plain, expected):
    arms = [[0, 1, 2], [2, 0, 1, 2], 1, [2, 2, 0]]
    engine, watcher = scripted_engine(target, makers(near), [5, 5, 5, 3], arms, cost=PRICES)
    requests = generate(engine, PROMPTS, SamplingParams(max_tokens=20))
    assert [request.token_ids for request in requests] == expected
    assert check_rows(watcher, near_plain) > 5
    engine.tally.finish()
    each = [np.resize(step.order.arm if step.order.arms is None else step.order.arms, len(step.slots))
            for step, _, _ in watcher.steps]  # fmt: skip
    counted = engine.tally.counts.sum(axis=(1, 2))
    assert counted.tolist() == np.bincount(np.concatenate(each)).tolist()
    assert (counted > 3).all()
    assert engine.tally.counts[1, 3:].sum() == 0  # the early exit goes two deep


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    arms=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=1, max_size=4),
    depths=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    blocks=st.sampled_from([None, 16]),
)
def test_greedy_output_is_plain_decoding_whoever_drafts_for_whom(
    target, near, near_plain, expected, arms, depths, blocks
):
    engine, watcher = scripted_engine(target, makers(near), depths, arms, num_kv_blocks=blocks, cost=PRICES)
    requests = generate(engine, PROMPTS, SamplingParams(max_tokens=20))
    assert [request.token_ids for request in requests] == expected
    check_rows(watcher, near_plain)


class OneRow:
    """What a simulated mixer asks of a replay."""

    def __init__(self, drafters):
        self.trace = self
        self.drafters = drafters

    def draft(self, arm, slots, emitted, depth, room):
        batch = len(slots)
        scores = {score: np.zeros((batch, depth)) for score in self.drafters[arm].scores}
        return Draft(self.drafters[arm], np.full(batch, depth), scores), np.zeros(batch, np.int64)


def test_the_plan_is_made_on_the_seconds_that_the_simulator_would_make_it_on(target, near):
    arms = [[0, 1, 2], [1, 1, 0], [2, 1]]
    engine, watcher = scripted_engine(target, makers(near), [5, 4, 2], arms, cost=PRICES)
    costs = []
    plan = engine.controller.plan
    engine.controller.plan = lambda draft, cost, *how: (
        costs.append(cost.seconds.numpy().copy()) or plan(draft, cost, *how)
    )
    generate(engine, PROMPTS[:4], SamplingParams(max_tokens=20))
    specs = tuple(drafter.spec for drafter in engine.drafters)
    simulated = SimulatedMixer(OneRow(specs), engine.cost, [None] * 3)
    mixed = switched = 0
    for (step, _, _), seen in zip(watcher.steps, costs, strict=True):
        context, batch = step.context, len(step.slots)
        drafter, more = specs[step.order.arm], 0.0
        if step.order.arms is not None:
            mixture = simulated.mix(step.order, np.arange(batch), engine.scheduler.slots, context.mean_context)
            drafter, more, mixed = mixture.drafter, mixture.draft_seconds, mixed + 1
            assert step.draft.drafter == mixture.draft.drafter
        prompts = sum(size for _, size in step.chunks)
        prefill = engine.cost.prefill_seconds(prompts, context.mean_context) if prompts else 0.0
        added = step.switch_price + prefill + more
        table = engine.cost.step_cost(drafter, batch, step.order.depth, context.mean_context).seconds
        assert seen.tobytes() == (table + added if added else table).tobytes()
        switched += bool(step.switch_price)
    assert mixed > 3
    assert switched > 1


CONTROLLERS = (
    "dcut@contextual:policy=ucb1/c=.1,scope=request",
    "dcut~temperature:refit_every=2@contextual:policy=round_robin,by=request,scope=request",
    "fixed_ratio:ratio=.6@contextual:policy=thompson_beta,scope=request",
)


@pytest.mark.parametrize("spec", CONTROLLERS)
def test_the_simulator_decides_again_what_was_decided_live(target, near, tmp_path, spec):
    recorded = record(target, spec, tmp_path / "run", drafters=makers(near), cost=PRICES)
    steps, difference = take_again(tmp_path / "run")
    assert difference is None, difference
    pulled = recorded.engine.tally.finish() and recorded.engine.tally.counts.sum(axis=(1, 2))
    assert np.count_nonzero(pulled) > 1
    assert len(steps) == recorded.engine.tally.totals.num_steps


def test_a_live_controller_may_mix_but_not_learn_from_drafters_that_did_not_run(target):
    engine = build_engine(target, "dcut@contextual:policy=ucb1,scope=request", ["ngram", "exit2"])
    assert engine.controller.mixes
    specs = engine.controller.drafters
    for arms in ("hedge", "contextual:policy=hedge/rate=2,scope=request"):
        message = refusal(lambda arms=arms: build_controller(f"fixed_depth@{arms}", specs, live=True))
        assert "learns from every drafter at every step" in message


def test_an_order_without_arms_is_one_drafters_step_of_the_mixing_controller(target, near):
    engine, watcher = scripted_engine(target, makers(near), [2], [[1, 1], [2, 2]], cost=PRICES)
    generate(engine, PROMPTS[:2], SamplingParams(max_tokens=12))
    assert engine.controller.mixes
    assert {step.order.arms is None for step, _, _ in watcher.steps} == {True}
    assert {step.order.arm for step, _, _ in watcher.steps} == {1, 2}
    assert all(isinstance(step.order, Order) for step, _, _ in watcher.steps)
