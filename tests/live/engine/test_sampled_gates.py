"""What the engine emits has the law of the model's own logits, counted over many requests.

Each configuration passes four gates at alpha .01 over 10,000 requests: chi-square on every pair of neighbouring tokens,
Kolmogorov-Smirnov on whole outputs. With five configurations a right engine is refused by 0.2 gates on average at
seeds taken at random; the seeds here are fixed, so the outcome is always the same.
"""

from dataclasses import replace

import numpy as np
import pytest

from specsim.live.sampling import SamplingParams
from tests.live.engine.engines import build_engine, check_all_is_given_back, early_exit, ngram, table
from tests.live.engine.laws import gates, joint_law, refused, sample

VOCABULARY = 8
COUNT = 10_000
LENGTH = 4
PROMPT = np.array([1, 2, 3, 1, 2])
"""Ends as it has gone on before, so that prompt lookup drafts from the first step on."""

CROWD = {"max_num_seqs": 256, "max_model_len": 16, "num_kv_blocks": None}

WARM = SamplingParams(LENGTH, 0.7)
HOT = SamplingParams(LENGTH, 1.3)
WARM_TOP_K = SamplingParams(LENGTH, 0.7, top_k=4)
HOT_TOP_P = SamplingParams(LENGTH, 1.3, top_p=0.8)
BOTH = SamplingParams(LENGTH, 1.3, top_k=6, top_p=0.9)

CERTAIN = {"ngram": ngram, "exit1": early_exit(1)}
SAMPLED = {"exit1 sampled": early_exit(1, law="sampled")}

CONFIGURATIONS = {
    "certain drafts, warm, top-k": ("exit1", "dcut", WARM_TOP_K),
    "certain drafts, hot, top-p": ("ngram", "fixed_depth", HOT_TOP_P),
    "sampled drafts, warm": ("exit1 sampled", "fixed_depth", WARM),
    "sampled drafts, hot, pruned": ("exit1 sampled", "dcut_causal", HOT),
    "sampled drafts, hot, both filters, pruned": ("exit1 sampled", "fixed_ratio:ratio=.5,score=max_prob", BOTH),
}


@pytest.fixture(scope="module")
def target(make_target):
    """A target whose laws are neither flat nor certain, and whose first layer is a middling drafter."""
    model = make_target(
        "float64", vocab_size=VOCABULARY, eos_token_id=None, num_hidden_layers=2, hidden_size=24, seed=5
    )
    model.model.lm_head.weight.data.mul_(2.0)
    return replace(model, tokenizer=None)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_outputs_have_the_law_of_the_model(target, name):
    drafter, spec, params = CONFIGURATIONS[name]
    engine = build_engine(
        target, spec, [(CERTAIN | SAMPLED)[drafter]], depth=2, seed=11, cost=table(["exit1", "ngram"], 1e-6), **CROWD
    )
    outputs = sample(engine, PROMPT, params, COUNT)
    found = gates(outputs, joint_law(target, PROMPT, params, LENGTH))
    assert refused(found) == [], found
    totals = engine.tally.finish()
    assert 0.05 < totals.num_accepted / totals.num_tested < 0.95  # both ways out of a test were taken
    check_all_is_given_back(engine)
