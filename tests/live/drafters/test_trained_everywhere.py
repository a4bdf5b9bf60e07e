"""Trained drafters at every position at once: drafts, scores, verdicts are the engine's at the positions it visits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from specsim.live.drafters.trained_everywhere import Drawing, TrainedEverywhere, hidden_states
from specsim.live.greedy import decode_greedy, decode_sampled
from specsim.live.recorder import judge
from specsim.live.sampling import SamplingParams, request_seed
from tests.live.drafters.scripted import plain
from tests.live.drafters.trained import Definition, as_arm, block_net, eagle_net, shape_of, trained_engine
from tests.live.engine.engines import generate, some_prompts

DEPTH = 5
LENGTH = 14
PROMPTS = [prompt % 8 for prompt in some_prompts(lengths=(5, 11, 1, 8), low=1, high=8)]
SEED = 4
HEAT = 1.3
KINDS = ["eagle", "two layers", "few tokens", "block"]


@pytest.fixture(scope="module")
def target(make_target):
    """Few tokens, so that random drafts are accepted now and then."""
    return replace(make_target(eos_token_id=None, vocab_size=8), tokenizer=None, tokenizer_hash="")


@pytest.fixture(scope="module")
def alone(target):
    """The target with transformers' own attention, whatever engine the other gets into."""
    return replace(target, model=plain(target))


@pytest.fixture(scope="module")
def nets(target):
    return {
        "eagle": eagle_net(target),
        "two layers": eagle_net(target, num_layers=2, norm_output=True, norm_each_feature=True),
        "few tokens": eagle_net(target, draft_vocab_size=5),
        "block": block_net(target),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_position_gets_the_drafts_and_scores_of_the_definition(alone, nets, kind):
    drafter, definition = TrainedEverywhere("it", nets[kind], alone, DEPTH), Definition(nets[kind], alone)
    for prompt in (PROMPTS[0], PROMPTS[2]):
        output = decode_sampled(alone, [prompt], [9], 1.5, LENGTH)[0].token_ids
        found = drafter.propose_everywhere(prompt, output)
        for position in range(len(output)):
            text = [*prompt.tolist(), *output[:position].tolist()]
            if len(text) < 2 and kind != "block":
                assert found.num_drafts[position] == 0  # a head reads pairs of neighbours
                continue
            tokens, prob, margin = definition.drafts(text, DEPTH)
            assert found.num_drafts[position] == DEPTH
            assert found.token_ids[position].tolist() == tokens
            np.testing.assert_allclose(found.confidence[position], prob, rtol=1e-6)
            np.testing.assert_allclose(found.margin[position], margin, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 3, 7])
def test_positions_in_pieces_are_drafted_alike(alone, nets, monkeypatch, size):
    output = decode_sampled(alone, PROMPTS[:1], [9], 1.5, LENGTH)[0].token_ids
    for kind in ("eagle", "block"):
        drafter = TrainedEverywhere("it", nets[kind], alone, DEPTH)
        whole = drafter.propose_everywhere(PROMPTS[0], output)
        monkeypatch.setattr("specsim.live.drafters.trained_everywhere.POSITIONS_AT_ONCE", size)
        monkeypatch.setattr("specsim.live.drafters.trained_everywhere.TOKENS_AT_ONCE", size * 6)  # of a block of 6
        monkeypatch.setattr("specsim.live.drafters.branches.QUERIES_AT_ONCE", size)
        pieces = drafter.propose_everywhere(PROMPTS[0], output)
        monkeypatch.undo()
        assert pieces.token_ids.tolist() == whole.token_ids.tolist()
        np.testing.assert_allclose(pieces.confidence, whole.confidence, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 3, 7])
def test_positions_in_pieces_are_drawn_and_judged_alike(alone, nets, monkeypatch, size):
    output = decode_sampled(alone, PROMPTS[:1], [9], 1.5, LENGTH)[0].token_ids
    for kind in ("eagle", "block"):
        drafter = TrainedEverywhere("it", nets[kind], alone, DEPTH, "sampled")
        whole = drafter.draw_everywhere(PROMPTS[0], output, Drawing(9, 1.5))
        monkeypatch.setattr("specsim.live.drafters.trained_everywhere.TOKENS_AT_ONCE", size * (DEPTH + 1))
        pieces = drafter.draw_everywhere(PROMPTS[0], output, Drawing(9, 1.5))
        monkeypatch.undo()
        assert pieces.token_ids.tolist() == whole.token_ids.tolist()
        assert pieces.accepted.tolist() == whole.accepted.tolist()
        np.testing.assert_allclose(pieces.accept_prob, whole.accept_prob, rtol=1e-6)


def test_a_gpu_takes_as_many_tokens_at_once_as_their_logits_may_be(alone, nets):
    """Launching a pass is what takes time there: 160 positions of 15 drafts of SmolLM2's vocabulary are one piece."""

    class Head(torch.Tensor):
        device = torch.device("cuda")

    drafter = TrainedEverywhere("it", nets["eagle"], alone, DEPTH, "sampled")
    assert drafter._tokens_at_once() == 512
    for vocabulary, expected in ((49_152, 2_730), (128_256, 1_046), (1 << 20, 512)):
        drafter._head = torch.empty((vocabulary, 0)).as_subclass(Head)
        assert drafter._tokens_at_once() == expected
    assert 160 * 16 <= 2_730


@pytest.mark.parametrize("kind", ["eagle", "block"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("heat", [0.0, HEAT])
def test_certain_drafts_and_their_acceptance_are_the_engines_where_it_goes(make_target, kind, dtype, heat):
    """Greedy and at a seed: the engine emits the recorded path, and each of its steps is the recorded block there.

    In bfloat16 a path may differ by rounding where the engine feeds a token beside its drafts: it is followed as far as
    it agrees, and drafts are compared where the texts do.
    """
    target = replace(make_target(dtype, eos_token_id=None, vocab_size=8), tokenizer=None, tokenizer_hash="")
    alone = replace(target, model=plain(target))
    net = (eagle_net if kind == "eagle" else block_net)(target)
    seeds = [request_seed(SEED, number) for number in range(len(PROMPTS))]
    paths = decode_sampled(alone, PROMPTS, seeds, heat, LENGTH) if heat else decode_greedy(alone, PROMPTS, LENGTH)
    drafter = TrainedEverywhere("it", net, alone, DEPTH)
    recorded = [
        (path.token_ids, drafter.propose_everywhere(prompt, path.token_ids))
        for prompt, path in zip(PROMPTS, paths, strict=True)
    ]
    engine, watcher = trained_engine(target, [as_arm(net)], [DEPTH], seed=SEED)
    requests = generate(engine, PROMPTS, SamplingParams(LENGTH, heat))
    exact = dtype != "bfloat16"
    same_paths = [request.token_ids == path.tolist() for request, (path, _) in zip(requests, recorded, strict=True)]
    assert all(same_paths) if exact else any(same_paths)
    blocks = [judge(proposals, path, token_ids=True) for path, proposals in recorded]
    agreed, compared = compare(watcher, recorded, blocks, exact)
    assert agreed == compared if exact else agreed > 0.8 * compared
    assert compared > 20


def compare(watcher, recorded, blocks, exact):
    """Steps on the recorded path whose drafts are the recorded ones, and all of those; `exact`: acceptance agrees."""
    agreed = compared = 0
    for step, emission, texts in watcher.steps:
        for row, text in enumerate(texts):
            number, position = whose(text)
            path, proposals = recorded[number]
            if text[len(PROMPTS[number]) :] != path[:position].tolist():
                continue
            compared += 1
            same = step.tokens[row].tolist() == proposals.token_ids[position].tolist()
            agreed += same
            if exact and same:
                np.testing.assert_allclose(step.scores["drawn_prob"][row], proposals.confidence[position], rtol=2e-4)
                accepted = min(int(emission.num_accepted[row]), LENGTH - position)
                assert accepted == blocks[number].num_accepted[position]
    return agreed, compared


def whose(text):
    """Which prompt a text begins with, and how many output tokens follow."""
    for number in np.argsort([-len(prompt) for prompt in PROMPTS]).tolist():
        prompt = PROMPTS[number].tolist()
        if text[: len(prompt)] == prompt:
            return number, len(text) - len(prompt)
    raise AssertionError


@pytest.mark.parametrize("kind", ["eagle", "few tokens", "block"])
def test_drawn_drafts_are_drawn_and_tested_as_the_engine_does_while_it_is_on_the_path(target, alone, nets, kind):
    seeds = [request_seed(SEED, number) for number in range(40)]
    prompt = PROMPTS[0]
    paths = decode_sampled(alone, [prompt] * len(seeds), seeds, HEAT, 6)
    drafter = TrainedEverywhere("it", nets[kind], alone, DEPTH, "sampled")
    recorded = [
        drafter.draw_everywhere(prompt, path.token_ids, Drawing(seed, HEAT))
        for path, seed in zip(paths, seeds, strict=True)
    ]
    engine, watcher = trained_engine(target, [as_arm(nets[kind], "sampled")], [DEPTH], seed=SEED, max_num_seqs=64)
    generate(engine, [prompt] * len(seeds), SamplingParams(6, HEAT))
    accepted = []
    for number, (step_row, emission_row, position) in enumerate(first_steps(watcher)):
        proposals, path = recorded[number], paths[number].token_ids
        assert position == 1
        tokens, scores = step_row
        assert tokens.tolist() == proposals.token_ids[1].tolist()
        np.testing.assert_allclose(scores["drawn_prob"], proposals.confidence[1], rtol=1e-6)
        np.testing.assert_allclose(scores["max_prob"], proposals.most[1], rtol=1e-6)
        assert min(emission_row, len(path) - 1) == proposals.accepted[1]
        accepted.append(int(proposals.accepted[1]))
    assert len(accepted) == len(seeds)
    assert len(set(accepted)) > 2


def first_steps(watcher):
    """What each request's first step drafted and had accepted, in the order of submission."""
    found = {}
    for step, emission, texts in watcher.steps:
        for row, sequence in enumerate(step.context.requests):
            scores = {name: values[row] for name, values in step.scores.items()}
            entry = ((step.tokens[row], scores), int(emission.num_accepted[row]), len(texts[row]) - len(PROMPTS[0]))
            found.setdefault(sequence, entry)
    return [found[sequence] for sequence in sorted(found)]


@pytest.mark.parametrize("kind", ["eagle", "block"])
def test_the_chance_of_a_drawn_draft_is_that_of_the_two_laws_behind_its_own_branch(alone, nets, kind):
    prompt, net = PROMPTS[0], nets[kind]
    output = decode_sampled(alone, [prompt], [3], HEAT, 8)[0].token_ids
    drafter = TrainedEverywhere("it", net, alone, DEPTH, "sampled")
    found = drafter.draw_everywhere(prompt, output, Drawing(3, HEAT))
    definition = Definition(net, alone)
    for position in range(1, 8):
        text = [*prompt.tolist(), *output[:position].tolist()]
        judged = min(DEPTH, len(output) - position)
        drafts = found.token_ids[position].tolist()
        assert (found.accept_prob[position, judged:] == 0).all()
        with torch.no_grad():
            own = alone.model(torch.tensor([[*text, *drafts]])).logits[0, len(text) - 1 : -1]
        law = (own / HEAT).softmax(-1)
        draft_law = (definition.logits(text, DEPTH)[: 1 if kind == "eagle" else None] / HEAT).softmax(-1)
        for place in range(min(judged, len(draft_law))):  # a head's later laws depend on what was drawn
            token = drafts[place]
            expected = min(1.0, float(law[place, token] / draft_law[place, token]))
            assert found.accept_prob[position, place] == pytest.approx(expected, rel=1e-5)


def test_near_the_context_limit_less_is_proposed(make_target):
    target = make_target(eos_token_id=None)
    prompt = np.arange(2, 30)
    output = np.arange(2, 12)
    for net in (
        eagle_net(target, shape=shape_of(target, max_positions=32)),
        block_net(target, shape=shape_of(target, max_positions=32)),
    ):
        found = TrainedEverywhere("it", net, target, DEPTH).propose_everywhere(prompt, output)
        assert found.num_drafts.tolist() == [4, 3, 2, 1, 0, 0, 0, 0, 0, 0]
        assert (found.token_ids[np.arange(DEPTH) >= found.num_drafts[:, None]] == -1).all()
        drawn = TrainedEverywhere("it", net, target, DEPTH, "sampled").draw_everywhere(prompt, output, Drawing(1, 1.0))
        assert drawn.num_drafts.tolist() == found.num_drafts.tolist()
        assert (drawn.accepted <= drawn.num_drafts).all()


def test_a_block_drafter_drafts_as_many_as_its_block_has_places_for(alone, nets):
    assert TrainedEverywhere("it", nets["block"], alone, 15).spec.max_depth == 5
    assert TrainedEverywhere("it", nets["eagle"], alone, 15).spec.max_depth == 15


def test_hidden_states_are_the_outputs_of_the_layers(alone):
    tokens = torch.from_numpy(PROMPTS[1])
    hooks = alone.model.get_decoder().layers[0]._forward_hooks
    before = list(hooks)
    with torch.no_grad():
        found = hidden_states(alone.model, tokens, (2, 0))
        assert list(hooks) == before
        states = alone.model(tokens[None], output_hidden_states=True).hidden_states
    assert torch.equal(found, torch.cat([states[3][0], states[1][0]], -1))
