"""Mutants of accept, recover and of when a depth is chosen are found by the enumeration, each by itself."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.kernels import accept as acceptance
from specsim.kernels import recover as recovery
from specsim.policies.budget.dcut_causal import DCutCausal
from specsim.study.exactness.table import combination, world

ACCEPT, RECOVER, WEIGHTS = acceptance.accept, recovery.recover, recovery.recovery_weights


@pytest.fixture(autouse=True)
def fresh():
    """What the mutants emit is not kept for later tests, nor what came before them."""
    world.cache_clear()
    yield
    world.cache_clear()


def inverted_residual(candidates, num_accepted, uniform):
    weights = WEIGHTS(candidates, num_accepted)
    rows = np.arange(len(num_accepted))
    rejected = num_accepted < candidates.num_verify
    position = np.minimum(num_accepted, candidates.tokens.shape[1] - 1)
    law = candidates.draft_law[rows, position]
    excess = np.maximum(law - candidates.target_law[rows, position], 0.0)
    use = rejected & (excess > 0).any(axis=1)
    return recovery.draw(np.where(use[:, None], excess, weights), uniform)


def bonus_from_the_draft(candidates, num_accepted, uniform):
    position = np.minimum(num_accepted, candidates.tokens.shape[1] - 1)
    law = candidates.draft_law[np.arange(len(num_accepted)), position]
    full = num_accepted == candidates.num_verify
    return recovery.draw(np.where(full[:, None], law, WEIGHTS(candidates, num_accepted)), uniform)


def residual_not_normalised(candidates, num_accepted, uniform):
    sums = np.cumsum(WEIGHTS(candidates, num_accepted), axis=1)
    return np.minimum((sums <= uniform[:, None]).sum(axis=1), sums.shape[1] - 1)


def recovered_from_the_target(candidates, num_accepted, uniform):
    return recovery.draw(candidates.target_law[np.arange(len(num_accepted)), num_accepted], uniform)


def rows_swapped(candidates, num_accepted, uniform):
    return RECOVER(replace(candidates, target_law=candidates.target_law[::-1]), num_accepted, uniform)


def at_most_instead_of_less(candidates, uniform):
    # Less than the next number above: less or equal, and nothing else changes.
    return ACCEPT(replace(candidates, target_law=np.nextafter(candidates.target_law, 2.0)), uniform)


def ratio_turned_over(candidates, uniform):
    depth = candidates.tokens.shape[1]
    return ACCEPT(
        replace(candidates, target_law=candidates.draft_law, draft_law=candidates.target_law[:, :depth]), uniform
    )


def first_uniform_for_all(candidates, uniform):
    return ACCEPT(candidates, np.repeat(uniform[:, :1], uniform.shape[1], axis=1))


def one_accepted_too_many(candidates, uniform):
    return np.minimum(ACCEPT(candidates, uniform) + 1, candidates.num_verify)


RECOVERS = [
    inverted_residual,
    bonus_from_the_draft,
    residual_not_normalised,
    recovered_from_the_target,
    rows_swapped,
]
ACCEPTS = [at_most_instead_of_less, ratio_turned_over, first_uniform_for_all, one_accepted_too_many]


def enumerated():
    return combination("fixed_depth", "sampled", "autoregressive")


def test_without_a_mutant_nothing_is_found():
    assert enumerated().finding == "exact"


@pytest.mark.parametrize("mutant", RECOVERS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_of_recover_is_found(monkeypatch, mutant):
    monkeypatch.setattr(recovery, "recover", mutant)
    assert enumerated().finding == "contradiction"


@pytest.mark.parametrize("mutant", ACCEPTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_of_accept_is_found(monkeypatch, mutant):
    monkeypatch.setattr(acceptance, "accept", mutant)
    assert enumerated().finding == "contradiction"


def test_accepting_at_uniform_zero_what_the_target_never_emits_is_found_though_it_has_no_measure(monkeypatch):
    monkeypatch.setattr(acceptance, "accept", at_most_instead_of_less)
    found = enumerated()
    assert found.bias <= 1e-12
    assert found.says == "a token that the target never emits was let through"


def test_a_certain_token_recovered_after_its_rejection_is_found(monkeypatch):
    monkeypatch.setattr(recovery, "recover", recovered_from_the_target)
    assert combination("fixed_depth", "point_mass", "parallel").finding == "contradiction"


def depth_chosen_after_drafting(self, draft, confidence, cost):
    """A plan that also cuts at the depth of the largest goodput, by what this step's drafts say."""
    batch = len(confidence)
    tokens = batch + np.concatenate([[0.0], np.cumprod(confidence, axis=1).sum(axis=0).cumsum()])
    return np.minimum(PLAN(self, draft, confidence, cost), np.argmax(tokens / cost.seconds[::batch]))


PLAN = DCutCausal.plan


@pytest.mark.parametrize(("law", "finding"), [("sampled", "contradiction"), ("point_mass", "exact")])
def test_a_depth_that_reads_the_drafts_it_cuts_is_found_where_drafts_are_drawn(monkeypatch, law, finding):
    assert combination("dcut_causal:depth=goodput", law, "autoregressive", seeds=40).finding == "exact"
    monkeypatch.setattr(DCutCausal, "plan", depth_chosen_after_drafting)
    assert combination("dcut_causal:depth=goodput", law, "autoregressive", seeds=40).finding == finding
