"""What holds for every policy that ends drafting early: the same answer everywhere, and causal."""

import numpy as np
import pytest

from specsim.core import StepCost
from specsim.policies.base import DraftStop
from specsim.policies.build import BUDGETS, build_controller
from tests.policies.test_every_policy import SPECS, STEPS, bits

STOPS = [spec for name, specs in SPECS.items() if issubclass(BUDGETS[name], DraftStop) for spec in specs]
FULL = {name: step for name, step in STEPS.items() if step[0].size}


def prices(batch, library):
    """Seconds by depth: drafting a position costs as much as verifying eight tokens."""
    return lambda depth: StepCost(library.asarray(0.01 + 8e-5 * depth + 1e-5 * np.arange(batch * depth + 1.0)))


def lengths(spec, step, proposal, library=np):
    confidence, num_drafts, _ = step
    draft = proposal(confidence, num_drafts, library)
    controller = build_controller(spec, [draft.drafter])
    return draft, controller.draft_lengths(draft, prices(len(confidence), library))


def test_there_are_stops():
    assert {spec.partition(":")[0] for spec in STOPS} == {"confidence_stop", "specdec_pp", "adaspec"}


@pytest.mark.parametrize("spec", STOPS)
def test_every_library_stops_at_the_same_place(spec, library, proposal):
    for name, step in FULL.items():
        draft, expected = lengths(spec, step, proposal)
        own, got = lengths(spec, step, proposal, library)
        assert bits(got) == bits(expected), name
        assert bits(own.num_drafts) == bits(draft.num_drafts), name


@pytest.mark.parametrize("spec", STOPS)
def test_a_stop_leaves_at_least_one_draft_and_at_most_all(spec, proposal):
    for name, step in FULL.items():
        draft, got = lengths(spec, step, proposal)
        assert got.dtype == np.int64, name
        assert np.all(got <= draft.num_drafts), name
        assert np.all(got >= np.minimum(draft.num_drafts, 1)), name


@pytest.mark.parametrize("spec", STOPS)
def test_all_that_was_drafted_is_verified(spec, proposal):
    draft = proposal(np.full((2, 3), 0.01), [3, 1])
    cost = StepCost(np.ones(7))
    assert build_controller(spec, [draft.drafter]).plan(draft, cost).num_verify.tolist() == [3, 1]


@pytest.mark.parametrize("spec", STOPS)
def test_a_position_is_drafted_whatever_comes_after_it(spec, proposal):
    rng = np.random.default_rng(4)
    keeps = build_controller(spec, [proposal(np.ones((1, 1))).drafter]).budget_policy.timing == "stop_after"
    changed = 0
    for _ in range(60):
        confidence = rng.beta(4, 1.2, (3, 6))
        position = int(rng.integers(1, 6))
        first = position if keeps else position + 1  # the first score that must not matter
        other = confidence.copy()
        other[:, first:] = rng.beta(4, 1.2, (3, 6 - first))
        drafted = [
            lengths(spec, (scores, np.full(3, 6), None), proposal)[1] > position for scores in (confidence, other)
        ]
        assert drafted[0].tolist() == drafted[1].tolist()
        changed += int(drafted[0].any() and not drafted[0].all())
    assert changed or spec.startswith("adaspec")  # it does stop; adaspec stops all requests at once
