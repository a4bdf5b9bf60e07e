"""Verification on packed logits: the definition on every array library, and the twin, which says the same."""

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.kernels import verify as definition
from specsim.kernels.launches import LAUNCHES, reset
from specsim.kernels.verify import Proposal, Sampling, verify
from tests.kernels.verifying import ENGINES, ON_GPU, TWINS, engine, inject, lists, logs, seeds, twin_modules

A, B, C = 0, 1, 2
ALMOST_ONE = {"grid": 1024, "offset": 1 - 2.0**-14}
"""With the digit 1023: 1 - 2^-24, the largest uniform."""


@pytest.fixture(params=ENGINES)
def check(request):
    """Each implementation."""
    return engine(request.param)


@pytest.fixture(params=TWINS)
def twin(request):
    """The twin, where it runs."""
    return engine(request.param)


def one_hot(tokens, vocabulary=4, dtype=np.float32):
    """Logits whose largest is each row's token."""
    return np.eye(vocabulary, dtype=dtype)[np.array(tokens)]


def random_case(seed, *, law=True, dtype=np.float32):
    """Requests of every kind in shuffled rows, a third of them greedy; rows of nobody are NaN."""
    rng = np.random.default_rng(seed)
    batch, depth, vocabulary = rng.integers(1, 5), rng.integers(0, 5), rng.integers(2, 30)
    num_verify = rng.integers(0, depth + 1, batch)
    starts = np.concatenate([[0], np.cumsum(num_verify[:-1] + 2)])
    logits = np.full((starts[-1] + num_verify[-1] + 3, vocabulary), np.nan, dtype)
    for request in range(batch):
        shape = (num_verify[request] + 1, vocabulary)
        logits[starts[request] : starts[request] + shape[0]] = 2 * rng.normal(size=shape)
    size = rng.integers(1, vocabulary + 1)
    held = rng.normal(size=(batch, depth, size))
    held = (held - np.log(np.exp(held).sum(-1, keepdims=True))).astype(np.float32)
    return {
        "logits": logits,
        "rows": starts,
        "tokens": rng.integers(0, size if law else vocabulary, (batch, depth)),
        "num_verify": num_verify,
        "law": held if law else None,
        "temperature": rng.choice([0.0, 0.5, 2.0], batch),
        "seed": rng.integers(0, 2**62, batch),
        "position": rng.integers(0, 500, batch),
    }


def test_at_temperature_0_drafts_are_accepted_while_they_are_the_most_likely_token(check):
    logits = one_hot([A, B, C] * 3)
    said = check(logits, [[A, B], [A, C], [B, B]], temperature=0.0)
    assert lists(said) == ([2, 1, 0], [C, B, A], [-1] * 3)
    law = np.log(np.full((3, 2, 4), 0.25, np.float32))
    assert lists(check(logits, [[A, B], [A, C], [B, B]], temperature=0.0, law=law)) == lists(said)


def test_of_equally_likely_tokens_the_first_is_the_most_likely(check, monkeypatch):
    monkeypatch.setattr("specsim.kernels.verify_triton.CHUNK", 2, raising=False)
    logits = np.array([[0.0, 1.0, 0.0, 1.0, 1.0]] * 2)
    assert lists(check(logits, [[B]], temperature=0.0)) == ([1], [B], [-1])
    assert lists(check(logits, [[3]], temperature=0.0)) == ([0], [B], [-1])


def test_a_greedy_batch_costs_no_softmax_and_a_mixed_one_only_that_of_its_sampling_rows(monkeypatch):
    sizes = []
    tempered = definition._Step.tempered
    monkeypatch.setattr(
        definition._Step, "tempered", lambda *args: sizes.append(len(args[1])) or tempered(*args), raising=True
    )
    numpy = engine("numpy")
    numpy(np.zeros((9, 4)), np.zeros((3, 2)), temperature=0.0)
    assert sizes == []
    numpy(np.zeros((9, 4)), np.zeros((3, 2)), temperature=[0.0, 1.0, 0.0], num_verify=[2, 1, 0])
    assert sizes == [2]


@pytest.mark.parametrize("law", [False, True], ids=["certain", "law"])
def test_rows_of_requests_may_lie_anywhere_and_what_nobody_owns_is_never_read(check, law):
    case = random_case(5, law=law)
    said = lists(check(**case))
    assert said[2] == [-1] * len(case["rows"])
    order = np.arange(len(case["rows"]))[::-1]
    turned = {name: value[order] if name != "logits" and value is not None else value for name, value in case.items()}
    assert lists(check(**turned)) == tuple([values[i] for i in order] for values in said)


@pytest.mark.parametrize("padding", [-1, 99])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_case_12_three_drafts_in_a_row_padded_to_five_are_three(check, padding, temperature):
    logits = np.full((6, 4), np.nan)
    logits[:4] = 200 * one_hot([A, B, C, 3])
    law = np.full((1, 5, 4), np.nan, np.float32)
    law[:, :3] = np.log(0.25)
    for held in (None, law):
        said = check(logits, [[A, B, C, padding, padding]], num_verify=3, temperature=temperature, law=held)
        assert lists(said) == ([3], [3], [-1])


@pytest.mark.parametrize("value", [np.nan, np.inf], ids=["nan", "inf"])
@pytest.mark.parametrize("law", [None, np.log(np.full((2, 2, 4), 0.25, np.float32))], ids=["certain", "law"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_case_5_a_row_without_a_law_names_request_and_position_and_gives_no_token(check, value, law, temperature):
    for position in range(3):
        logits = 200 * one_hot([A, B, C] * 2)
        logits[3 + position, position] = value  # at the draft itself: a maximum like another, if it were one
        said = check(logits, [[A, B], [A, B]], temperature=temperature, law=law)
        assert lists(said) == ([2, position], [C, -1], [-1, position])
    said = check(np.full((2, 4), -np.inf), np.zeros((2, 0)), temperature=temperature)
    assert lists(said) == ([0, 0], [-1, -1], [0, 0])


def test_a_draft_that_is_no_token_is_no_match_for_a_row_without_a_law(check):
    for law in (None, np.log(np.full((1, 1, 3), 1 / 3, np.float32))):
        for temperature in (0.0, 1.0):
            said = check(np.full((2, 3), np.nan), [[-1]], law=law, temperature=temperature)
            assert lists(said) == ([0], [-1], [0])


def test_a_row_beyond_the_first_rejected_draft_may_hold_nan(check):
    logits = 200 * one_hot([A, B, C])
    logits[1:] = np.nan
    for law in (None, np.log(np.full((1, 2, 4), 0.25, np.float32))):
        for temperature in (0.0, 1.0):
            assert lists(check(logits, [[C, B]], temperature=temperature, law=law)) == ([0], [A], [-1])


def test_case_5_a_draft_law_of_nan_is_found_where_it_is_read(check):
    law = np.log(np.full((3, 2, 4), 0.25, np.float32))
    law[0, 1, B] = np.nan  # the drafted token's own
    law[1, 0, C] = np.nan  # another's, of a rejected draft
    law[2, 1, C] = np.nan  # another's, never read
    logits = 200 * one_hot([A, B, C] * 3)
    said = check(logits, [[A, B], [B, B], [A, B]], law=law)
    assert lists(said) == ([1, 0, 2], [-1, -1, C], [1, 0, -1])
    greedy = check(logits, [[A, B], [B, B], [A, B]], law=law, temperature=0.0)
    assert lists(greedy) == ([2, 0, 2], [C, A, C], [-1] * 3)


def test_case_3_at_uniform_0_an_impossible_draft_is_rejected_and_an_agreed_one_accepted(check, monkeypatch):
    inject(monkeypatch, 4, offset=0.0)
    logits = logs([[0.0, 1.0], [0.5, 0.5], [0.5, 0.5], [0.5, 0.5]])
    law = logs([[[0.5, 0.5]]] * 2, np.float32)
    assert check(logits, [[A], [A]], law=law).num_accepted.tolist() == [0, 1]
    assert lists(check(logits, [[A], [A]])) == ([0, 1], [B, A], [-1, -1])


def test_equal_laws_accept_under_every_uniform(check, monkeypatch):
    inject(monkeypatch, **ALMOST_ONE)
    probabilities = np.array([1e-6, 0.3, 0.7 - 1e-6])
    for dtype in (np.float32, np.float64):
        logits, law = np.log(np.stack([probabilities] * 2)).astype(dtype), np.log(probabilities).astype(dtype)
        said = check(logits, [[A]], law=law[None, None], seed=seeds(accept=1023, target=1023))
        assert said.num_accepted.tolist() == [1]


@pytest.mark.parametrize("vocabulary", [8193, 10000, 151936])
@pytest.mark.parametrize("digit", [0, 512, 1023])
def test_case_4_a_residual_away_from_the_last_tile_draws_no_token_beyond_it(vocabulary, digit, monkeypatch):
    if not ON_GPU:
        inject(monkeypatch, **ALMOST_ONE)
    rng = np.random.default_rng(vocabulary)
    target = np.zeros((1, vocabulary))
    target[0, 50:100] = rng.dirichlet(np.ones(50))
    buffer = np.full((3, vocabulary + 4096), 50.0, np.float32)  # what lies beyond a row would be drawn at once
    buffer[:2, :vocabulary] = np.concatenate([logs(target, np.float32)] * 2)
    law = np.full((1, 1, vocabulary), -np.inf, np.float32)
    law[..., -1] = 0.0
    seed = seeds(accept=digit, target=digit)
    for check in (engine("numpy"), engine("twin on cuda" if ON_GPU else "twin")):
        logits = check.asarray(buffer)[:2, :vocabulary]
        for held in (law, None):
            said = lists(check(logits, [[vocabulary - 1]], law=held, seed=seed))
            assert said[0] == [0]
            assert target[0, said[1][0]] > 0
    assert said == lists(engine("numpy")(logs(np.concatenate([target] * 2)), [[vocabulary - 1]], seed=seed))


def test_case_6_laws_equal_up_to_rounding_and_a_forced_rejection_draw_from_the_target(check, monkeypatch):
    inject(monkeypatch, 8, offset=0.5)
    probabilities = np.array([0.25, 0.5, 0.125, 0.125], np.float32)
    logits = np.stack([np.log(probabilities)] * 2)
    law = np.log(probabilities)
    law[[0, 2]] = np.nextafter(law[[0, 2]], np.float32(0))
    law[[1, 3]] = np.nextafter(law[[1, 3]], np.float32(-9))
    law = np.concatenate([law[None]] * 8)[:, None]
    law[:, :, B] = 3.0  # forces the rejection of a draft of B, and is itself no residual
    said = check(np.tile(logits, (8, 1)), [[B]] * 8, law=law, seed=seeds(accept=7, target=np.arange(8)))
    assert said.num_accepted.tolist() == [0] * 8
    assert said.next_token.tolist() == [A, A, B, B, B, B, C, 3]


def test_case_7_a_seed_gives_the_same_tokens_alone_in_a_batch_and_in_another_slot(check):
    rng = np.random.default_rng(7)
    row, tokens = rng.normal(size=(3, 50)).astype(np.float32), rng.integers(0, 50, (1, 2))
    law = np.log(rng.dirichlet(np.ones(50), (1, 2))).astype(np.float32)
    for held in (None, law):
        alone = lists(check(row, tokens, seed=42, position=9, law=held))
        logits = np.concatenate([rng.normal(size=(9, 50)).astype(np.float32), row])
        others = np.concatenate([rng.integers(0, 50, (3, 2)), tokens])
        laws = None if held is None else np.concatenate([law] * 4)
        batch = check(logits, others, seed=[1, 2, 3, 42], position=[0, 5, 9, 9], temperature=[0, 1, 2, 1], law=laws)
        assert [values[3] for values in lists(batch)] == [values[0] for values in alone]


def test_with_certain_drafts_the_output_is_a_function_of_the_seed_whatever_is_drafted(check):
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(4, 6))
    plain = [int(check(logits[p : p + 1], np.zeros((1, 0)), seed=11, position=p).next_token[0]) for p in range(4)]
    wrong = [(token + 1) % 6 for token in plain]
    for accepted in range(4):
        drafts = [plain[:accepted] + wrong[accepted:3]]
        assert lists(check(logits, drafts, seed=11)) == ([accepted], [plain[accepted]], [-1])
        cut = check(logits, drafts, seed=11, num_verify=min(accepted, 2))
        assert lists(cut) == ([min(accepted, 2)], [plain[min(accepted, 2)]], [-1])


def test_case_11_a_token_beyond_the_drafters_vocabulary_is_reached_by_residual_and_bonus(check, monkeypatch):
    inject(monkeypatch, 24)
    logits = logs([[0.125, 0.125, 0.25, 0.5]] * 48)
    law = logs([[[0.5, 0.5]]] * 24, np.float32)
    rejected = check(logits, [[A]] * 24, law=law, seed=seeds(accept=23, target=np.arange(24)))
    assert rejected.num_accepted.tolist() == [0] * 24
    assert np.bincount(rejected.next_token).tolist() == [0, 0, 8, 16]  # what is left is .25 and .5
    bonus = check(logits, [[A]] * 24, law=law, seed=seeds(target=np.arange(24), position=1))
    assert bonus.num_accepted.tolist() == [1] * 24
    assert np.bincount(bonus.next_token).tolist() == [3, 3, 6, 12]


def test_case_11_an_id_beyond_the_targets_vocabulary_is_never_accepted(check):
    logits = np.zeros((2, 3))
    for token in (3, 2**40, -1):
        for law in (None, np.log(np.full((1, 1, 3), 1 / 3, np.float32))):
            for temperature in (0.0, 1.0):
                said = check(logits, [[token]], law=law, temperature=temperature)
                assert said.num_accepted.tolist() == [0]
                assert 0 <= said.next_token[0] < 3
    with pytest.raises(InputError, match="Vd from 1 to the target's 3 tokens"):
        check(logits, [[A]], law=np.zeros((1, 1, 4), np.float32))


def test_a_tiny_temperature_is_greedy_and_overflows_nothing(check):
    logits = np.array([[1e4, 3e4, -1e4], [0.0, -3e4, -np.inf]], np.float32)
    for law in (None, np.log(np.full((1, 1, 3), 1 / 3, np.float32))):
        assert lists(check(logits, [[B]], temperature=1e-6, law=law)) == ([1], [A], [-1])


@pytest.mark.parametrize("depth", [0, 2])
def test_an_empty_batch_and_a_step_without_drafts_are_steps(check, depth):
    assert lists(check(np.zeros((4, 3)), np.zeros((0, depth)))) == ([], [], [])
    law = np.zeros((2, 0, 3), np.float32)
    for held in (None, law):
        said = check(200 * one_hot([C, A]), np.zeros((2, 0)), law=held)
        assert lists(said) == ([0, 0], [C, A], [-1, -1])


@pytest.mark.parametrize("seed", range(16))
def test_the_twin_says_what_the_definition_says(twin, seed, monkeypatch):
    monkeypatch.setattr(twin_modules()[0], "CHUNK", (4, 8, 4096)[seed % 3])
    case = random_case(seed, law=seed % 4 > 0, dtype=(np.float32, np.float64)[seed % 2])
    assert lists(twin(**case)) == lists(engine("numpy")(**case))


def test_the_twin_reads_half_types_and_any_strides(twin):
    torch = pytest.importorskip("torch")
    for dtype, seed in ((torch.bfloat16, 9), (torch.bfloat16, 12), (torch.float16, 17), (torch.float16, 18)):
        case = random_case(seed)
        logits = torch.asarray(case["logits"]).to(dtype)
        exact = case | {"logits": logits.float().numpy()}
        turned = twin.asarray(logits.float().numpy().T.copy()).to(dtype).T
        assert turned.stride(0) == 1
        assert lists(twin(**(case | {"logits": turned}))) == lists(engine("numpy")(**exact))
        assert lists(engine("torch")(**(case | {"logits": logits}))) == lists(engine("numpy")(**exact))


def test_a_drafts_own_logit_is_read_at_its_stride(twin):
    logits = twin.asarray((200 * one_hot([B, C])).T.copy()).T
    law = np.log(np.full((1, 1, 4), 0.25, np.float32))
    assert lists(twin(logits, [[B]], law=law)) == ([1], [C], [-1])


def test_the_twin_reads_strided_drafts_and_laws(twin):
    case = random_case(9)
    arrays = {name: twin.asarray(np.array(value)) for name, value in case.items()}
    wide = {name: arrays[name].repeat_interleave(2, dim=-1)[..., ::2] for name in arrays if name != "logits"}
    law = arrays["law"].permute(2, 1, 0).contiguous().permute(2, 1, 0)
    tokens = arrays["tokens"].T.contiguous().T
    proposal = Proposal(tokens, wide["num_verify"], law)
    sampling = Sampling(wide["temperature"].float(), wide["seed"], wide["position"])
    said = twin.call(arrays["logits"], wide["rows"], proposal, sampling)
    assert said.next_token.tolist() == engine("numpy")(**case).next_token.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": np.zeros(4)}, r"logits have shape \(4,\): allowed is \[N, V\]"),
        ({"tokens": np.zeros(2, np.int64)}, r"tokens have shape \(2,\): allowed is \[2, D\]"),
        ({"num_verify": np.zeros(3, np.int64)}, r"num_verify has shape \(3,\): allowed is \[2\]"),
        ({"seed": np.zeros((2, 1), np.int64)}, r"seed has shape \(2, 1\): allowed is \[2\]"),
        ({"law": np.zeros((2, 2, 3), np.float32)}, r"the draft law has shape \(2, 2, 3\): allowed is \[2, 1, Vd\]"),
    ],
)
def test_shapes_that_contradict_each_other_are_refused(change, message):
    held = {"logits": np.zeros((4, 3)), "tokens": np.zeros((2, 1), np.int64), "law": None}
    held |= dict.fromkeys(("rows", "num_verify", "seed", "position"), np.zeros(2, np.int64)) | change
    sampling = Sampling(np.ones(2, np.float32), held["seed"], held["position"])
    with pytest.raises(InputError, match=message):
        verify(held["logits"], held["rows"], Proposal(held["tokens"], held["num_verify"], held["law"]), sampling)


def test_the_twin_counts_its_calls_and_refuses_types_and_sizes_it_does_not_read(twin):
    reset()
    twin(np.zeros((2, 3)), [[A]])
    assert LAUNCHES["verify"] == 1
    with pytest.raises(InputError, match=r"logits is torch\.int64: allowed are torch\.bfloat16"):
        twin(np.zeros((2, 3), np.int64), [[A]])
    with pytest.raises(InputError, match=r"70000 drafts over 3 tokens: allowed are 65535 requests and 32768 places"):
        twin(np.zeros((2, 3)), np.zeros((1, 70000)))


@pytest.mark.gpu
def test_a_cuda_graph_holds_the_twin_and_replays_it_on_new_inputs():
    torch = pytest.importorskip("torch")
    twin = engine("twin on cuda")
    for law in (False, True):
        first, second = ({name: _on(twin, value) for name, value in random_case(6, law=law).items()} for _ in range(2))
        second["seed"] = second["seed"] + 17

        def call(case):
            proposal = Proposal(case["tokens"], case["num_verify"], case["law"])
            sampling = Sampling(case["temperature"].float(), case["seed"], case["position"])
            return twin.call(case["logits"], case["rows"], proposal, sampling)

        call(first)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            said = call(first)
        first["seed"].copy_(second["seed"])
        graph.replay()
        assert said.next_token.tolist() == call(second).next_token.tolist()


def _on(twin, value):
    return None if value is None else twin.asarray(np.array(value))
