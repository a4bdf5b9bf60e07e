"""Stopping where the drafter is unsure: with the draft that failed, and without it."""

import numpy as np
import pytest

from specsim.core import StepCost
from specsim.errors import InputError
from specsim.policies.build import build_controller

SCORES = [[0.9, 0.5, 0.39, 0.9], [0.1, 0.9, 0.9, 0.9], [0.9, 0.9, 0.9, 0.9]]


def lengths(spec, proposal, num_drafts=None):
    draft = proposal(SCORES, num_drafts)
    return build_controller(spec, [draft.drafter]).draft_lengths(draft, lambda depth: StepCost(np.ones(13))).tolist()


def test_the_draft_that_fails_is_dropped_unless_it_is_the_first(proposal):
    assert lengths("confidence_stop", proposal) == [2, 1, 4]


def test_the_draft_that_fails_is_kept_when_told_so(proposal):
    assert lengths("confidence_stop:keep=true", proposal) == [3, 1, 4]


def test_a_confidence_at_the_threshold_goes_on(proposal):
    assert lengths("confidence_stop:threshold=.5", proposal) == [2, 1, 4]
    assert lengths("confidence_stop:threshold=.51", proposal) == [1, 1, 4]


def test_it_never_asks_for_more_than_was_found(proposal):
    assert lengths("confidence_stop:keep=true", proposal, [1, 0, 2]) == [1, 0, 2]


def test_dropping_a_sampled_draft_by_its_own_probability_is_refused_and_keeping_it_is_not(drafter):
    sampler = drafter(law="sampled", structure="autoregressive")
    assert not build_controller("confidence_stop", [sampler]).lossy
    assert not build_controller("confidence_stop:keep=true,score=drawn_prob", [sampler]).lossy
    with pytest.raises(InputError, match="depend on the draft itself"):
        build_controller("confidence_stop:score=drawn_prob", [sampler])
