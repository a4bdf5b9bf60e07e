"""Gates on the law of what verification emits, and the mutants that show that they can fail.

Enumerations inject uniforms on a grid that divides every threshold, so that shares are probabilities, not estimates.
Samples are drawn with fixed seeds and tested at alpha .01: of right code, with other seeds, each sampled test would
fail once in 100 times, and one or another of the seven, run on one implementation, with chance 1 - .99^7 = 7 %.
"""

import numpy as np
import pytest
from scipy import stats

from specsim.kernels.top_filter import top_filter
from specsim.kernels.uniform import DRAFT, uniform
from tests.kernels.verifying import ENGINES, engine, inject, logs, seeds

A, B, C = 0, 1, 2
SAMPLES = 20_000
SAMPLED = ("numpy", ENGINES[-1])
"""The definition, and the twin on a GPU. Interpreted, 20,000 samples take minutes: there it is compared by draw."""


# Exact gates: each takes an implementation, and raises AssertionError for a wrong law.


def accepted_share(check):
    """A draft is accepted with min(1, target / draft), temperature before the softmax."""
    target, draft = np.array([0.2, 0.2, 0.6]), np.array([0.4, 0.25, 0.35])
    for temperature in (2.0, 0.5):
        law = target ** (1 / temperature) / (target ** (1 / temperature)).sum()
        logits, held = logs([target] * 40, np.float32), logs([[draft]] * 20, np.float32)
        said = check(logits, [[A]] * 20, law=held, seed=seeds(accept=np.arange(20)), temperature=temperature)
        assert abs(said.num_accepted.sum() - 20 * min(1, law[A] / draft[A])) <= 0.5 + 1e-6


def recovered_law(check):
    """After a rejection each token comes with its share of max(target - draft, 0)."""
    target, draft = [0.4, 0.4, 0.2], [0.8, 0.1, 0.1]
    held = {"law": logs([[draft]] * 20, np.float32), "seed": seeds(accept=19, target=np.arange(20))}
    said = check(logs([target] * 40, np.float32), [[A]] * 20, **held)
    assert said.num_accepted.tolist() == [0] * 20
    assert np.bincount(said.next_token, minlength=3).tolist() == [0, 15, 5]


def bonus_law(check):
    """After full acceptance each token comes with its target probability at the row after."""
    logits = logs([[0.5, 0.5], [0.2, 0.8]] * 20, np.float32)
    held = {"law": logs([[[0.6, 0.4]]] * 20, np.float32), "seed": seeds(target=np.arange(20), position=1)}
    said = check(logits, [[B]] * 20, **held)
    assert said.num_accepted.tolist() == [1] * 20
    assert np.bincount(said.next_token).tolist() == [4, 16]


def certain_law(check):
    """A certain draft is accepted with its target probability; the first token emitted has the target's law."""
    logits = logs([[0.3, 0.7], [0.5, 0.5]] * 20, np.float32)
    said = check(logits, [[A]] * 20, seed=seeds(accept=5, target=np.arange(20)))
    assert int(said.num_accepted.sum()) == 6
    assert (said.next_token[said.num_accepted == 0] == B).all()
    assert said.next_token[said.num_accepted == 1].tolist() == [A] * 6


def own_position(check):
    """Each position's draw takes its own uniform."""
    logits = logs([[0.3, 0.7], [0.25, 0.75]] * 20, np.float32)
    said = check(logits, [[A]] * 20, seed=seeds(target=np.arange(20), position=1))
    assert np.bincount(said.next_token).tolist() == [5, 15]


def uniform_zero(check):
    """A draft that the target never emits is rejected even at uniform 0."""
    logits = logs([[0.0, 1.0], [0.5, 0.5]], np.float32)
    said = check(logits, [[A]], law=logs([[[0.5, 0.5]]], np.float32))
    assert said.num_accepted.tolist() == [0]


def own_rows(check):
    """Requests keep their own laws."""
    logits = 200 * np.eye(4, dtype=np.float32)[[0, 1, 2, 3]]
    for law in (None, logs([[[0.25] * 4]] * 2, np.float32)):
        said = check(logits, [[0], [2]], law=law)
        assert said.num_accepted.tolist() == [1, 1]
        assert said.next_token.tolist() == [1, 3]


def last_tile(check):
    """What lies behind a row is not drawn: here the next request's largest logit."""
    logits = np.full((5, 10), -3.0, np.float32)  # a row more than is read
    logits[:, 0] = 300.0
    for temperature in (0.0, 1.0):
        for law in (None, logs([[[0.1] * 9]] * 2, np.float32)):
            said = check(check.asarray(logits)[:, 1:], [[8], [8]], law=law, temperature=temperature)
            assert (said.next_token < 9).all()


def padded_law(check):
    """What the drafter has no id for has probability 0 in its law."""
    logits = logs([[0.25, 0.25, 0.25, 0.25]] * 40, np.float32)
    held = {"law": logs([[[0.5, 0.5]]] * 20, np.float32), "seed": seeds(accept=19, target=np.arange(20))}
    said = check(logits, [[A]] * 20, **held)
    assert np.bincount(said.next_token, minlength=4).tolist() == [0, 0, 10, 10]


EXACT = {
    gate.__name__: gate
    for gate in (accepted_share, recovered_law, bonus_law, certain_law, own_position, own_rows, last_tile, padded_law)
}
GRID = 20


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("implementation", ENGINES)
def test_exactly(name, implementation, monkeypatch):
    inject(monkeypatch, GRID)
    EXACT[name](engine(implementation))


@pytest.mark.parametrize("implementation", ENGINES)
def test_exactly_at_uniform_zero(implementation, monkeypatch):
    inject(monkeypatch, GRID, offset=0.0)
    uniform_zero(engine(implementation))


def emitted(check, drawn, target, law):
    """Law of the first token emitted when one draft with law `drawn` is verified as if its law were `law`.

    The accept test and the draw after it have uniforms of their own, so each is swept by itself.
    """
    out, size = np.zeros(len(target)), 225
    for token in np.flatnonzero(drawn):
        held = None if law is None else logs([[law]] * size, np.float32)
        logits, drafts = logs([target] * 2 * size, np.float32), [[token]] * size
        sweep = np.arange(size)
        if law is None:  # sampled and matched: one uniform decides both
            first = check(logits, drafts, seed=seeds(target=sweep))
            out += drawn[token] * np.bincount(
                np.where(first.num_accepted > 0, token, first.next_token), minlength=len(out)
            ) / size  # fmt: skip
            continue
        accepts = check(logits, drafts, law=held, seed=seeds(accept=sweep)).num_accepted.mean()
        out[token] += drawn[token] * accepts
        if accepts < 1:
            said = check(logits, drafts, law=held, seed=seeds(accept=size - 1, target=sweep))
            out += drawn[token] * (1 - accepts) * np.bincount(said.next_token, minlength=len(out)) / size
    return out


def filtered(probabilities, top_k):
    """A law through the filter."""
    kept = np.exp(top_filter(logs([probabilities]), np.array([top_k]), np.array([1.0]))[0])
    return kept / kept.sum()


@pytest.mark.parametrize("implementation", ENGINES[:3])
def test_case_1_a_greedy_draft_verified_as_certain_keeps_the_target(implementation, monkeypatch):
    inject(monkeypatch, 225)
    check, target = engine(implementation), (0.28, 0.72)
    assert emitted(check, np.array([1.0, 0.0]), target, None) == pytest.approx(target, abs=1e-6)
    wrong = emitted(check, np.array([1.0, 0.0]), target, (0.56, 0.44))
    assert wrong == pytest.approx([0.5, 0.5], abs=5e-3)  # as a draw from its law: the draft's ratio, not the target


@pytest.mark.parametrize("implementation", ENGINES[:3])
def test_case_2_a_filter_on_one_side_is_the_wrong_law(implementation, monkeypatch):
    inject(monkeypatch, 225)
    check, raw, target = engine(implementation), (0.5, 0.3, 0.2), (0.4, 0.4, 0.2)
    drawn = filtered(raw, 2)
    assert drawn == pytest.approx([0.625, 0.375, 0.0])
    assert emitted(check, drawn, target, drawn) == pytest.approx(target, abs=1e-6)
    assert emitted(check, drawn, target, raw) == pytest.approx([0.5, 0.5, 0.0], abs=1e-6)


def test_case_2_a_target_through_the_same_filter_stays_inside_it(monkeypatch):
    inject(monkeypatch, 225)
    target = filtered((0.36, 0.24, 0.24, 0.16), 2)  # tokens level with the second are kept: three
    law = emitted(engine("numpy"), filtered((0.3, 0.5, 0.1, 0.1), 1), target, (0.0, 1.0, 0.0, 0.0))
    assert law == pytest.approx([3 / 7, 2 / 7, 2 / 7, 0], abs=1 / 225)
    assert law[3] == 0


# Sampled gates: a chain of tokens, each drawn given the one before it.


class Chain:
    """A language of few tokens: the law of the next token depends on the one before it.

    target     [V, V], of the next token given the last
    draft      [V, Vd] the drafter's: given the last token (`autoregressive`), or given the anchor and the depth
               (`parallel`); None: certain drafts, (last token + 1) mod V
    """

    def __init__(self, vocabulary, draft_vocabulary=None, structure="autoregressive", temperature=0.7, seed=0):
        rng = np.random.default_rng(seed)
        self.target = rng.dirichlet(np.full(vocabulary, 0.8), vocabulary)
        self.draft = None
        if draft_vocabulary:
            self.draft = rng.dirichlet(np.full(draft_vocabulary, 0.8), vocabulary)
        self.structure, self.temperature = structure, temperature

    def propose(self, last, seed, position, depth):
        """[B, depth] tokens and their laws [B, depth, Vd]."""
        tokens, laws, anchor = [], [], last
        for step in range(depth):
            if self.draft is None:
                last = (last + 1) % len(self.target)
            else:
                given = last if self.structure == "autoregressive" else (anchor + step) % len(self.target)
                laws.append(self.draft[given])
                sums = np.cumsum(laws[-1], axis=1)
                last = (sums <= uniform(seed, position + step, DRAFT)[:, None] * sums[:, -1:]).sum(axis=1)
            tokens.append(last)
        return np.stack(tokens, axis=1), np.log(np.stack(laws, axis=1)).astype(np.float32) if laws else None

    def generate(self, check, samples, length, depth=2, prune=True):
        """[samples, length] tokens after token 0, by steps of at most `depth` drafts, fewer for a third of them."""
        seed, out = np.arange(samples) * 7919 + 13, np.zeros((samples, length + depth + 2), np.int64)
        done = np.ones(samples, np.int64)
        lengths = np.where(np.arange(samples) % 3 == 0, depth - 1, depth) if prune else np.full(samples, depth)
        every = np.arange(samples)
        while (done <= length).any():
            last = out[every, done - 1]
            tokens, laws = self.propose(last, seed, done, depth)
            before = np.concatenate([last[:, None], tokens], axis=1)
            logits = (np.log(self.target[before]) * self.temperature).reshape(-1, len(self.target)).astype(np.float32)
            held = {"law": laws, "num_verify": lengths, "seed": seed, "position": done}
            said = check(logits, tokens, temperature=self.temperature, **held)
            assert (said.faulty == -1).all()
            for step in range(depth + 1):
                token = np.where(step < said.num_accepted, before[:, min(step + 1, depth)], said.next_token)
                write = (step <= said.num_accepted) & (done + step < out.shape[1])
                out[every[write], done[write] + step] = token[write]
            done = np.minimum(done + said.num_accepted + 1, length + 1)
        return out[:, 1 : length + 1]

    def law(self, length):
        """[V ** length] probability of each sequence after token 0."""
        law, last = np.ones(1), np.zeros(1, np.int64)
        for _ in range(length):
            law = (law[:, None] * self.target[last]).ravel()
            last = np.tile(np.arange(len(self.target)), len(last))
        return law


def chance_of(tokens, law):
    """P value of the sequences' counts, sequences too rare for the test taken together."""
    vocabulary = round(len(law) ** (1 / tokens.shape[1]))
    index = tokens @ vocabulary ** np.arange(tokens.shape[1] - 1, -1, -1)
    counts, expected = np.bincount(index, minlength=len(law)), law * len(tokens)
    rare = expected < 5
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    return stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue


CHAINS = {
    "certain drafts": Chain(3, None, seed=1),
    "parallel drafts": Chain(3, 3, "parallel", seed=2),
    "autoregressive drafts": Chain(3, 3, seed=3),
    "a padded vocabulary": Chain(4, 3, seed=4),
    "a high temperature": Chain(3, 3, temperature=2.5, seed=5),
}


@pytest.mark.parametrize("implementation", SAMPLED)
@pytest.mark.parametrize("name", CHAINS)
def test_sequences_have_the_targets_law_with(name, implementation):
    chain = CHAINS[name]
    tokens = chain.generate(engine(implementation), SAMPLES, length=3)
    assert chance_of(tokens, chain.law(3)) > 0.01


@pytest.mark.parametrize("implementation", SAMPLED)
@pytest.mark.parametrize("structure", ["certain", "law"])
def test_a_large_vocabulary_is_drawn_by_its_law(structure, implementation):
    rng = np.random.default_rng(8)
    size, groups = 997, 10
    target = rng.dirichlet(np.full(size, 0.3))
    logits = np.broadcast_to(np.log(np.maximum(target, 1e-30)), (2 * SAMPLES // groups, size)).astype(np.float32)
    draft = rng.dirichlet(np.full(size, 0.3)).astype(np.float32) + 1e-30
    law = np.broadcast_to(np.log(draft), (SAMPLES // groups, 1, size)).astype(np.float32)
    drawn = []
    for group in range(groups):  # in parts, to hold little at once
        seed = np.arange(SAMPLES // groups) + group * SAMPLES
        tokens = np.full((len(seed), 1), int(target.argmax()))
        if structure == "law":
            tokens = np.searchsorted(np.cumsum(draft) / draft.sum(), uniform(seed, np.zeros_like(seed), DRAFT))[:, None]
        said = engine(implementation)(logits, tokens, law=law if structure == "law" else None, seed=seed)
        drawn.append(np.where(said.num_accepted > 0, tokens[:, 0], said.next_token))
    drawn = np.concatenate(drawn)
    below = np.cumsum(target) - target
    spread = below[drawn] + target[drawn] * rng.random(SAMPLES)  # uniform where the law is right
    assert stats.kstest(spread, "uniform").pvalue > 0.01


def test_the_gate_of_sequences_finds_a_small_bias():
    chain = CHAINS["autoregressive drafts"]
    tokens = chain.generate(engine("numpy"), SAMPLES, length=3)
    other = Chain(3, 3, seed=3)
    other.target = 0.98 * chain.target + 0.02 / 3
    assert chance_of(tokens, other.law(3)) < 1e-3


def test_certain_drafts_change_no_token_of_a_seed():
    chain = CHAINS["certain drafts"]
    drafted = chain.generate(engine("numpy"), 2000, length=4)
    plain = chain.generate(engine("numpy"), 2000, length=4, depth=1)
    np.testing.assert_array_equal(drafted, plain)
    np.testing.assert_array_equal(drafted, chain.generate(engine("torch"), 2000, length=4, prune=False))


@pytest.mark.parametrize("name", CHAINS)
def test_the_twin_draws_the_definitions_tokens(name):
    chain = CHAINS[name]
    drawn = chain.generate(engine("twin"), 6, length=3)
    np.testing.assert_array_equal(drawn, chain.generate(engine("numpy"), 6, length=3))
