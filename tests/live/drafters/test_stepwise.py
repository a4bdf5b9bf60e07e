"""Drafting token after token: the law that is drawn from, the scores that are told, and where drafting ends."""

import numpy as np
import pytest
import torch

from specsim.kernels.uniform import DRAFT, uniform
from specsim.live.drafters.batch import DraftBatch
from specsim.live.drafters.stepwise import STEPWISE_SCORES, draft_stepwise
from specsim.live.sampling import SamplingParams
from tests.live.drafters.scripted import as_drafter, wobbled
from tests.live.engine.engines import build_engine, early_exit, generate, some_prompts, table
from tests.live.engine.laws import next_law

VOCABULARY = 11
PARAMS = (
    SamplingParams(8, 0.0),
    SamplingParams(8, 0.7),
    SamplingParams(8, 1.6, top_k=3),
    SamplingParams(8, 1.1, top_p=0.6),
    SamplingParams(8, 0.9, top_k=5, top_p=0.8),
)


def batch_of(room, params=PARAMS, filters=True):
    num = len(params)
    lengths = np.arange(num) + 3
    column = lambda values, dtype: torch.tensor(values, dtype=dtype)  # noqa: E731
    return DraftBatch(
        np.arange(num), lengths, np.array(room), torch.arange(num), torch.from_numpy(lengths), torch.tensor(room),
        torch.zeros((num, 30), dtype=torch.int64), column([p.temperature for p in params], torch.float32),
        torch.arange(num) + 100, torch.from_numpy(lengths * 2), column([p.top_k for p in params], torch.int64)
        if filters else None, column([p.top_p for p in params], torch.float32) if filters else None,
    )  # fmt: skip


@pytest.fixture
def logits():
    """[depth, B, V]"""
    return torch.randn(4, len(PARAMS), VOCABULARY, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) * 2


def draft(logits, batch, law, depth=None, stop=None):
    fed = []
    drafted = draft_stepwise(lambda step: fed.append(step) or logits[step], batch, depth or len(logits), law, stop)
    return drafted, fed


def test_drawn_drafts_come_from_each_requests_own_law_by_its_own_uniforms(logits):
    batch = batch_of([4] * len(PARAMS))
    drafted, _ = draft(logits, batch, "sampled")
    for row, params in enumerate(PARAMS):
        for place in range(4):
            ours = drafted.log_prob[row, place].exp().numpy()
            raw = logits[place, row].numpy()
            law = next_law(raw, params) if params.temperature else np.eye(VOCABULARY)[raw.argmax()]
            np.testing.assert_allclose(ours, law, rtol=1e-6)
            chance = float(uniform(batch.seeds[row], batch.positions[row] + (place << 32), DRAFT))
            token = int(batch.history[row, batch.lengths[row] + place])
            assert law[:token].sum() - 1e-6 <= chance <= law[: token + 1].sum() + 1e-6
            assert law[token] > 0
            assert float(drafted.scores["drawn_prob"][row, place]) == pytest.approx(law[token], rel=1e-6)
            assert float(drafted.scores["max_prob"][row, place]) == pytest.approx(law.max(), rel=1e-6)


def test_certain_drafts_are_the_most_likely_tokens_whatever_is_sampled(logits):
    batch = batch_of([4] * len(PARAMS))
    drafted, _ = draft(logits, batch, "point_mass")
    assert drafted.log_prob is None
    tokens = np.stack([batch.history[row, start : start + 4] for row, start in enumerate(batch.lengths)])
    assert tokens.tolist() == logits.argmax(-1).T.tolist()
    most = logits.softmax(-1).max(-1).values.T.float()
    torch.testing.assert_close(drafted.scores["drawn_prob"].float(), most)
    assert drafted.scores["max_prob"].equal(drafted.scores["drawn_prob"])
    pair = logits.topk(2).values
    torch.testing.assert_close(drafted.scores["margin"].float(), (pair[..., 0] - pair[..., 1]).T.float())


@pytest.mark.parametrize("law", ["point_mass", "sampled"])
def test_scores_are_float32_numbers_shifted_by_one_and_empty_beyond_the_drafts(logits, law):
    room = [4, 0, 1, 3, 2]
    drafted, _ = draft(logits, batch_of(room), law)
    assert drafted.num_drafts.tolist() == room
    assert tuple(drafted.scores) == STEPWISE_SCORES
    for values in drafted.scores.values():
        assert values.dtype == torch.float64
        assert values.float().double().equal(values)
        assert [int((row != 0).sum()) for row in values] == room
    shifted, drawn = drafted.scores["shifted_prob"], drafted.scores["drawn_prob"]
    assert shifted[:, 0].tolist() == [1.0, 0.0, 1.0, 1.0, 1.0]
    assert shifted[0, 1:].equal(drawn[0, :-1])


@pytest.mark.parametrize("law", ["point_mass", "sampled"])
def test_no_pass_is_made_that_no_request_has_room_for(logits, law):
    drafted, fed = draft(logits, batch_of([2, 0, 1, 0, 2]), law)
    assert fed == [0, 1]
    assert {values.shape for values in drafted.scores.values()} == {(len(PARAMS), 4)}
    assert drafted.log_prob is None or drafted.log_prob.shape == (len(PARAMS), 4, VOCABULARY)
    nothing, fed = draft(logits, batch_of([0] * len(PARAMS)), law)
    assert fed == []
    assert nothing.num_drafts.tolist() == [0] * len(PARAMS)
    assert not any(values.any() or values.shape[1] != 4 for values in nothing.scores.values())


def test_drafting_ends_where_it_is_told_to(logits):
    asked = []
    batch = batch_of([4, 1, 4, 4, 3])
    drafted, fed = draft(logits, batch, "sampled", stop=lambda so_far: asked.append(so_far) or len(asked) == 2)
    assert fed == [0, 1]
    assert [one.scores["margin"].shape[1] for one in asked] == [1, 2]
    assert drafted.num_drafts.tolist() == [2, 1, 2, 2, 2]
    assert drafted.log_prob.shape[1] == 2


STOPS = ("confidence_stop:threshold=.9", "confidence_stop:score=drawn_prob,threshold=.9,keep=true",
         "specdec_pp:score=max_prob,threshold=.4", "adaspec")  # fmt: skip


@pytest.fixture(scope="module")
def target(make_target):
    return make_target(eos_token_id=None)


def passes_and_steps(engine, prompts, params):
    """Draft passes of one token a request at most two, and steps that drafted."""
    depths, passes = [], []
    drafter = engine.drafters[0]
    run = drafter._runner.run
    drafter._runner.run = lambda *args: passes.append(len(depths)) or run(*args)

    class Depths:
        def on_step(self, row, step, emission):
            if emission is not None:
                depths.append((step.order.depth, int(step.seen.num_drafts.max())))

        def on_request(self, request):
            pass

    def run_settled():  # a run may tell of a step while the next one drafts already
        while engine.step():
            pass

    engine.run = run_settled
    engine.observers.append(Depths())
    requests = generate(engine, prompts, params)
    return np.bincount(passes, minlength=len(depths)), depths, requests


@pytest.mark.parametrize("spec", STOPS)
@pytest.mark.parametrize("who", ["exit2", "wobbled"])
def test_a_policy_that_stops_drafting_saves_the_passes(target, spec, who):
    maker = early_exit(2) if who == "exit2" else as_drafter(wobbled(target, share=0.3))
    engine = build_engine(target, spec, [maker], cost=table([who], 1e-3))
    passes, depths, requests = passes_and_steps(engine, some_prompts()[:1], SamplingParams(max_tokens=24))
    # What a policy drops was drafted first: one pass more than its longest draft, unless that is as deep as any. A
    # drafter with a cache of its own reads the prompt in a pass before.
    for step, (made, (_, longest)) in enumerate(zip(passes.tolist(), depths, strict=True)):
        extra = int(step == 0 and who == "wobbled")
        assert longest <= made - extra <= min(longest + 1, 5)
    assert passes.sum() < 5 * len(depths)
    assert {longest for _, longest in depths} != {5}
    plain = build_engine(target, "autoregressive", [maker], cost=table([who], 1e-3))
    assert requests[0].token_ids == generate(plain, some_prompts()[:1], SamplingParams(max_tokens=24))[0].token_ids
