"""Drafts that are drawn from a law keep the target's, through the whole engine, and only where that can be promised.

Each configuration passes three gates at alpha .01 over 6,000 requests, as in `engine.test_sampled_gates`: at seeds
taken at random a right engine would be refused by 0.1 gates on average. The seeds are fixed.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from specsim.live.sampling import SamplingParams
from tests.live.drafters.scripted import Scripted, as_drafter, wobbled
from tests.live.engine.engines import build_engine, check_all_is_given_back, early_exit, ngram, refusal, table
from tests.live.engine.laws import gates, joint_law, refused, sample

VOCABULARY = 8
COUNT = 6_000
LENGTH = 3
PROMPT = np.array([1, 2, 3, 1, 2])
CROWD = {"max_num_seqs": 256, "max_model_len": 16, "num_kv_blocks": None}
PRICES = table(["exit1", "ngram", "wobbled"], 1e-6)
HOT = SamplingParams(LENGTH, 1.3)
BOTH = SamplingParams(LENGTH, 1.2, top_k=6, top_p=0.9)


@pytest.fixture(scope="module")
def target(make_target):
    """A target whose laws are neither flat nor certain."""
    model = make_target(vocab_size=VOCABULARY, eos_token_id=None, num_hidden_layers=2, hidden_size=24, seed=5)
    model.model.lm_head.weight.data.mul_(2.0)
    return replace(model, tokenizer=None, tokenizer_hash="")


@pytest.fixture(scope="module")
def near(target):
    """A drafter that is off by a good deal, and lacks the last two tokens."""
    drafter = wobbled(target, share=0.3)
    drafter.model.lm_head.weight = torch.nn.Parameter(drafter.model.lm_head.weight[:6].detach().clone())
    return drafter


def check_law(engine, target, params):
    outputs = sample(engine, PROMPT, params, COUNT)
    found = gates(outputs, joint_law(target, PROMPT, params, LENGTH))
    assert refused(found) == [], found
    totals = engine.tally.finish()
    assert 0.05 < totals.num_accepted / totals.num_tested < 0.95  # both ways out of a test were taken
    check_all_is_given_back(engine)
    return totals


@pytest.mark.parametrize(("who", "params"), [("exit", HOT), ("model", BOTH)])
def test_outputs_have_the_targets_law(target, near, who, params):
    maker = early_exit(1, "sampled") if who == "exit" else as_drafter(near, "sampled")
    engine = build_engine(
        target, "dcut_lagged:score=max_prob,ratios=.5/.7", [maker], depth=2, seed=7, cost=PRICES, **CROWD
    )
    totals = check_law(engine, target, params)
    assert 0.2 < totals.num_verified / totals.num_drafted < 0.95


def test_drawn_and_certain_drafts_of_one_step_both_keep_the_targets_law(target, near):
    makers = [ngram, as_drafter(near, "sampled"), early_exit(1)]
    engine = build_engine(target, "fixed_depth@ngram", makers, depth=2, seed=7, cost=PRICES, **CROWD)
    specs = [drafter.spec for drafter in engine.drafters]
    engine = type(engine)(
        engine.setup, engine.drafters, Scripted(specs, [2], [[0, 1, 2]]), PRICES, engine.config, engine.options
    )
    check_law(engine, target, HOT)
    assert (engine.tally.counts.sum(axis=(1, 2)) > 500).all()


@pytest.mark.parametrize("maker", ["exit", "model"])
def test_pruning_that_looks_at_drawn_drafts_is_refused(target, near, maker):
    made = early_exit(1, "sampled") if maker == "exit" else as_drafter(near, "sampled")
    for spec in ("dcut", "dcut:score=max_prob", "fixed_ratio:ratio=.5,score=drawn_prob"):
        message = refusal(lambda spec=spec: build_engine(target, spec, [made], depth=2, cost=PRICES))
        assert "is not exact with drafter" in message
        assert "sampled, autoregressive" in message


def test_a_greedy_requests_output_does_not_depend_on_drawn_drafts(target, near):
    alone = build_engine(target, "autoregressive", [ngram], depth=2, cost=PRICES, **CROWD)
    drafted = build_engine(target, "fixed_depth", [as_drafter(near, "sampled")], depth=2, cost=PRICES, **CROWD)
    greedy = SamplingParams(10)
    expected, found = (engine.submit(PROMPT, greedy) for engine in (alone, drafted))
    drafted.submit(PROMPT, SamplingParams(10, 1.0))
    alone.run()
    drafted.run()
    assert found.token_ids == expected.token_ids
