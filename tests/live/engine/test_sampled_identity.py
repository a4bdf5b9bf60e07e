"""Certain drafts are sampled and matched: a seed's tokens are the same whatever drafts, prunes or runs beside."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from specsim.kernels.uniform import uniform
from specsim.live.acceptor import Pending, TargetAcceptor
from specsim.live.drafters import stepwise
from specsim.live.ops import choose_ops
from specsim.live.sampling import SamplingParams
from tests.live.engine.conftest import VOCABULARY
from tests.live.engine.engines import DRAFTERS, build_engine, early_exit, generate, some_prompts

PROMPTS = some_prompts(high=VOCABULARY)
NUM_TOKENS = 14

POLICIES = ["fixed_depth@round_robin", "fixed_depth:depth=1@exit2", "dcut@ucb1", "nightjar:depths=0/2/5,bins=1/3@exit1"]

CROWDED = {"max_num_seqs": 3, "max_num_batched_tokens": 20, "num_kv_blocks": 16}

LAWS = {
    "warm": {"temperature": 0.7},
    "hot": {"temperature": 1.3},
    "top-k": {"temperature": 1.0, "top_k": 3},
    "top-p": {"temperature": 1.3, "top_p": 0.8},
    "both": {"temperature": 0.7, "top_k": 4, "top_p": 0.9},
}


def asked(law, seed, **more):
    return SamplingParams(max_tokens=NUM_TOKENS, seed=seed, **law, **more)


def tokens(requests):
    return [request.token_ids for request in requests]


@pytest.fixture(scope="module")
def plain(small):
    """Tokens of each law under plain decoding, one request at a time."""
    return {
        name: tokens(
            generate(
                build_engine(small, "autoregressive", max_num_seqs=1),
                PROMPTS,
                [asked(law, seed) for seed in range(len(PROMPTS))],
            )
        )
        for name, law in LAWS.items()
    }


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_seed_gives_the_same_tokens_whatever_the_policy_the_depth_and_the_batch(small, plain, law, policy):
    limits = CROWDED if law in ("warm", "both") else {"max_num_seqs": 6}
    engine = build_engine(small, policy, list(DRAFTERS), **limits)
    params = [asked(LAWS[law], seed) for seed in range(len(PROMPTS))]
    assert tokens(generate(engine, PROMPTS, params)) == plain[law]
    assert engine.tally.finish().num_accepted > 0


def test_the_laws_differ_in_what_they_emit(plain):
    assert len({str(outputs) for outputs in plain.values()}) == len(LAWS)


def test_requests_with_different_laws_share_a_batch_and_none_notices(make_target, plain):
    """A filter of one request must not round the logits of another, and greedy ones stay in their own precision."""
    for dtype in ("float64", "float32"):
        target = replace(make_target(dtype, vocab_size=VOCABULARY, eos_token_id=None), tokenizer=None)
        laws = [{"temperature": 0.0}, *LAWS.values()]
        params = [asked(law, seed) for seed, law in enumerate(laws)]
        alone = [tokens(generate(build_engine(target), [PROMPTS[0]], own))[0] for own in params]
        together = generate(build_engine(target, "dcut@exit2", ["exit2"], max_num_seqs=6), [PROMPTS[0]] * 6, params)
        assert tokens(together) == alone


def test_a_filter_of_one_request_leaves_the_logits_of_all_others_as_they_are_bit_for_bit(small):
    """Rounding decides between two tokens once in millions of draws, which no short run meets: look at the bits."""
    seen = []
    ops = choose_ops("cpu")
    acceptor = TargetAcceptor(ops.__class__(**{**vars(ops), "verify": lambda logits, *rest: seen.append(logits)}))
    engine = build_engine(small)
    for prompt, law in zip(PROMPTS[:3], ({"temperature": 0.0}, LAWS["warm"], LAWS["both"]), strict=True):
        engine.submit(prompt, asked(law, 1))
    engine.step()
    slots = engine.scheduler.decoding
    batch = engine.setup.state.batch(
        slots, engine.scheduler.slots.length[slots], np.zeros(3, np.int64), np.zeros(3, np.int64)
    )
    logits = torch.randn(3, VOCABULARY, dtype=torch.float64)
    nothing = torch.zeros((3, 0), dtype=torch.int64)
    acceptor.judge(logits, torch.arange(3), Pending(batch, -1, nothing, torch.zeros(3, dtype=torch.int64), None))
    kept = seen[0] > -torch.inf
    assert torch.equal(seen[0][:2], logits[:2])
    assert torch.equal(seen[0][kept], logits[kept])
    assert int(kept[2].sum()) <= 4


@pytest.mark.parametrize("law", ["warm", "top-p"])
def test_case_7_seed_42_gives_the_same_tokens_alone_among_unseeded_requests_and_in_slot_3(small, law):
    def seed_42_at(place, size, policy):
        engine = build_engine(small, policy, ["ngram", "exit2"], seed=place)
        params = [SamplingParams(max_tokens=NUM_TOKENS, temperature=1.1) for _ in range(size)]
        params[place] = asked(LAWS[law], 42)
        prompts = [PROMPTS[1 + turn % 4] for turn in range(size)]
        prompts[place] = PROMPTS[0]
        requests = [engine.submit(prompt, own) for prompt, own in zip(prompts, params, strict=True)]
        engine.step()
        slot = next(slot for slot, held in enumerate(engine.scheduler.slots.requests) if held is requests[place])
        engine.run()
        return slot, requests[place].token_ids

    alone = seed_42_at(0, 1, "autoregressive")
    others = seed_42_at(0, 3, "fixed_depth@round_robin")
    third = seed_42_at(3, 4, "dcut@round_robin")
    assert (alone[0], third[0]) == (0, 3)
    assert alone[1] == others[1] == third[1]


def test_requests_without_a_seed_are_independent_and_repeat_with_the_engine_s_seed(small):
    def outputs(seed):
        engine = build_engine(small, seed=seed)
        return tokens(generate(engine, [PROMPTS[0]] * 4, SamplingParams(max_tokens=NUM_TOKENS, temperature=1.3)))

    first = outputs(5)
    assert len({str(one) for one in first}) == 4
    assert outputs(5) == first
    assert all(one != other for one, other in zip(outputs(6), first, strict=True))


def test_the_largest_and_the_smallest_seed_are_served(small):
    for seed in (0, 2**63 - 1):
        runs = [
            tokens(generate(build_engine(small, policy), [PROMPTS[0]], asked(LAWS["hot"], seed)))
            for policy in ("autoregressive", "fixed_depth")
        ]
        assert runs[0] == runs[1]


def test_drafts_drawn_from_a_law_never_use_a_number_twice(small, monkeypatch):
    """A position drafted again draws anew: policies have seen scores that depend on the draft that came to nothing."""
    used = []

    def recorded(seed, position, stream):
        seed, position = torch.broadcast_tensors(seed, position)
        used.extend(zip(seed.tolist(), position.tolist(), strict=True))
        return uniform(seed, position, stream)

    monkeypatch.setattr(stepwise, "uniform", recorded)
    engine = build_engine(small, "fixed_depth", [early_exit(1, law="sampled")], max_num_seqs=6)
    generate(engine, PROMPTS, [asked(LAWS["hot"], seed) for seed in range(len(PROMPTS))])
    assert len(used) == len(set(used)) > 6 * NUM_TOKENS


@pytest.mark.parametrize("law", LAWS)
def test_with_drafts_drawn_from_a_law_a_seed_gives_the_same_tokens_in_any_batch(small, law):
    """Not whatever the depth: which uniform decides a token depends on what was drafted. But on nobody else."""

    def outputs(**limits):
        engine = build_engine(small, "fixed_depth:depth=3", [early_exit(2, law="sampled")], **limits)
        params = [asked(LAWS[law], seed) for seed in range(len(PROMPTS))]
        return tokens(generate(engine, PROMPTS, params)), engine.tally.finish()

    alone, totals = outputs(max_num_seqs=1)
    assert 0 < totals.num_accepted < totals.num_tested
    for limits in ({"max_num_seqs": 6}, {"max_num_seqs": 3, "max_num_batched_tokens": 23}):
        assert outputs(**limits)[0] == alone


def test_greedy_requests_are_not_touched_by_drafts_drawn_from_a_law(small):
    """Beside requests that sample, too: at temperature 0 the drafter's law is certain, and so is the target's."""
    greedy = SamplingParams(NUM_TOKENS)
    params = [greedy if seed % 2 else asked(LAWS["both"], seed) for seed in range(len(PROMPTS))]
    plain = tokens(generate(build_engine(small), PROMPTS, greedy))
    engine = build_engine(small, "fixed_depth", [early_exit(2, law="sampled")])
    assert tokens(generate(engine, PROMPTS, params))[1::2] == plain[1::2]
