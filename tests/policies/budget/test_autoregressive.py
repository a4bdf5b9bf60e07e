"""Autoregressive: no draft, ever."""

import numpy as np

from specsim.core import StepCost
from specsim.policies.build import build_controller


def test_it_never_drafts(drafter, context):
    controller = build_controller("autoregressive", [drafter()])
    assert [controller.choose(context).depth for _ in range(3)] == [0, 0, 0]


def test_it_needs_no_choice_among_drafters_and_no_drafter_at_all(drafter, context):
    for drafters in ([drafter("a"), drafter("b")], []):
        assert build_controller("autoregressive", drafters).choose(context).depth == 0


def test_it_verifies_nothing_whatever_was_drafted(proposal):
    draft = proposal(np.ones((2, 3)))
    controller = build_controller("autoregressive", [draft.drafter])
    assert controller.plan(draft, StepCost(np.ones(7))).num_verify.tolist() == [0, 0]


def test_it_is_exact_with_every_drafter(drafter):
    sampled = drafter(law="sampled", structure="autoregressive", scores=())
    assert not build_controller("autoregressive", [sampled], live=True).lossy
