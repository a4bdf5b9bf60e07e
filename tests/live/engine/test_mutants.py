"""Each fault that is put into the engine is noticed by a small gate, and a right engine passes every gate.

The gates are tests of this folder in small: `greedy` and `crowded` of test_greedy_identity.py, `stale columns` and
`ends` of test_cases.py, `no law` of test_requests.py, `seeds` of test_sampled_identity.py, and `law` of
test_sampled_gates.py.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from specsim.errors import InputError
from specsim.live.greedy import decode_greedy
from specsim.live.sampling import SamplingParams
from tests.live.byte_tokenizer import END, byte_tokenizer
from tests.live.engine.engines import DRAFTERS, build_engine, early_exit, generate, some_prompts, table
from tests.live.engine.laws import gates, joint_law, refused, sample
from tests.live.engine.mutants import MUTANTS
from tests.live.engine.scripts import Script, scripted_engine
from tests.live.engine.test_cases import poison_stale
from tests.live.engine.test_requests import poisoned
from tests.live.engine.test_sampled_gates import CROWD, HOT, PROMPT

PAGE = Path(__file__).resolve().parents[3] / "docs" / "exactness.md"

PROMPTS = some_prompts(lengths=(5, 9, 12))
AFTER = [5] * 30
CAUGHT = (AssertionError, IndexError, RuntimeError, ValueError, InputError)
"""A fault may also be noticed by an engine that cannot go on."""


@pytest.fixture(scope="module")
def right(endless, small, make_target):
    """What right engines and plain decoding give, worked out before any fault is put in."""
    greedy = [output.token_ids.tolist() for output in decode_greedy(endless, PROMPTS, 14)]
    laws = [{"temperature": 0.0}, {"temperature": 1.3}, {"temperature": 0.9, "top_k": 3}]
    params = [SamplingParams(14, seed=7 + seed, **law) for seed, law in enumerate(laws)]
    prompts = some_prompts(lengths=(5, 9, 12), high=8)
    seeded = [generate(build_engine(small), [prompts[i]], params[i])[0].token_ids for i in range(3)]
    clean = build_engine(endless, "fixed_depth@round_robin", list(DRAFTERS), max_num_seqs=2)
    generate(clean, PROMPTS, SamplingParams(14))
    model = make_target("float64", vocab_size=8, eos_token_id=None, num_hidden_layers=2, hidden_size=24, seed=5)
    model.model.lm_head.weight.data.mul_(4.0)
    counted = replace(model, tokenizer=None)
    return {
        "endless": endless,
        "greedy": greedy,
        "drafted": drafted(clean),
        "small": small,
        "params": params,
        "prompts": prompts,
        "seeded": seeded,
        "counted": counted,
        "law": joint_law(counted, PROMPT, replace(HOT, max_tokens=3), 3),
        "poisoned": poisoned(make_target, greedy[0][2]),
    }


def greedy(right, speaking):
    engine = build_engine(right["endless"], "fixed_depth@round_robin", ["ngram", "exit2"], max_num_batched_tokens=26)
    assert [one.token_ids for one in generate(engine, PROMPTS, SamplingParams(14))] == right["greedy"]


def crowded(right, speaking):
    engine = build_engine(right["endless"], "fixed_depth@exit2", ["exit2"], num_kv_blocks=10)
    prompts = [PROMPTS[0], PROMPTS[1], PROMPTS[0], PROMPTS[1]]
    outputs = [one.token_ids for one in generate(engine, prompts, SamplingParams(14))]
    assert outputs == right["greedy"][:2] * 2
    assert engine.scheduler.num_preemptions > 0


def stale_columns(right, speaking):
    engine = build_engine(right["endless"], "fixed_depth@round_robin", list(DRAFTERS), max_num_seqs=2)
    requests = [engine.submit(prompt, SamplingParams(14)) for prompt in PROMPTS]
    more = True
    while more:
        poison_stale(engine, 10**9)
        more = engine.step()
    assert [one.token_ids for one in requests] == right["greedy"]
    assert drafted(engine) == right["drafted"]


def drafted(engine):
    """Drafts and accepted ones of a run, which lossless faults of a drafter change although no output does."""
    totals = engine.tally.finish()
    return totals.num_drafted, totals.num_accepted


def ends(right, speaking):
    tokens = byte_tokenizer().encode("ab#c##d", add_special_tokens=False)
    cases = [
        ({"max_tokens": 3}, [*tokens, *AFTER], 3),
        ({}, [*tokens[:2], END, *tokens], 3),
        ({"stop": ("##",)}, tokens, 6),
    ]
    for options, output, count in cases:
        chunks = []
        engine = scripted_engine(speaking, [Script([*output, *AFTER])], depth=7)
        request = engine.submit([3], SamplingParams(seed=0, **options), on_chunk=chunks.append)
        engine.run()
        assert request.token_ids == output[:count]
        assert "".join(chunk.text for chunk in chunks) == request.text
    chunks = []
    engine = scripted_engine(speaking, [Script([*tokens, *AFTER])], depth=1)
    engine.submit([3], SamplingParams(seed=0, stop=("##",)), on_chunk=chunks.append)
    engine.run()
    assert "".join(chunk.text for chunk in chunks) == "ab#c"


def no_law(right, speaking):
    bad = right["greedy"][0][2]
    engine = build_engine(right["poisoned"])
    first, second, third = generate(engine, [PROMPTS[0], [bad], PROMPTS[2]], SamplingParams(6))
    assert second.error == "request 1: the law at output position 0 holds NaN"
    assert first.error == "request 0: the law at output position 3 holds NaN"
    assert third.token_ids == right["greedy"][2][:6]


def seeds(right, speaking):
    engine = build_engine(right["small"], "fixed_depth@round_robin", ["ngram", "exit2"], num_kv_blocks=14)
    assert [one.token_ids for one in generate(engine, right["prompts"], right["params"])] == right["seeded"]


def law(right, speaking):
    drafter, cost = early_exit(1, law="sampled"), table(["exit1"], 1e-6)
    engine = build_engine(right["counted"], "fixed_depth", [drafter], depth=2, seed=3, cost=cost, **CROWD)
    outputs = sample(engine, PROMPT, replace(HOT, max_tokens=3), 4000)
    assert refused(gates(outputs, right["law"])) == []


GATES = {
    "greedy": greedy,
    "crowded": crowded,
    "stale columns": stale_columns,
    "ends": ends,
    "no law": no_law,
    "seeds": seeds,
    "law": law,
}


@pytest.mark.parametrize("gate", GATES)
def test_a_right_engine_passes(gate, right, speaking):
    GATES[gate](right, speaking)


def test_putting_a_fault_in_is_not_what_is_noticed(right, speaking, monkeypatch):
    for mutant in MUTANTS.values():
        replace(mutant, wrong=mutant.right).apply(monkeypatch)
    for gate in GATES.values():
        gate(right, speaking)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_gate_notices(name, right, speaking, monkeypatch):
    mutant = MUTANTS[name]
    mutant.apply(monkeypatch)
    with pytest.raises(CAUGHT):
        GATES[mutant.gate](right, speaking)


def test_the_page_lists_every_mutant_and_the_gate_that_notices_it():
    rows = re.findall(r"^\| ([^|]+) \| `gate: ([^`]+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(name, mutant.gate) for name, mutant in MUTANTS.items()]
