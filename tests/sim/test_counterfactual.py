"""What the emitted tokens say of drafters that did not draft them."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.cost.examples import linear_table
from specsim.policies.build import build_controller
from specsim.sim import ClosedLoop, EngineConfig, simulate
from specsim.sim.replay import Replay
from tests.sim.hand_trace import HandRequest, HandTrace, drafter

SWITCH = {"block": 0.001, "other": 0.002}
COST = linear_table(0.008, 0.0001, drafters=SWITCH, max_depth=4)
DECODE_ONLY = EngineConfig(prefill="excluded")


def replay_of(*requests, num_drafts=None):
    """Two drafters of four tokens, each request in its own slot."""
    entries = [HandRequest(40, [accepted[0], accepted[1]], num_drafts=num_drafts) for accepted in requests]
    replay = Replay(HandTrace(entries, (drafter("block"), drafter("other"))), len(entries), 40)
    for slot in range(len(entries)):
        replay.admit(slot, slot)
    return replay


def everywhere(accepted):
    return [accepted] * 40


def test_a_block_is_followed_along_the_emitted_tokens_and_no_further():
    # The first drafter's next 2 drafts are right, the second's next 4.
    replay = replay_of((everywhere(2), everywhere(4)))
    told = {}
    for num_emitted in (1, 2, 3, 4, 5):
        found = replay.counterfactual(np.array([0]), np.array([1]), np.array([num_emitted]))
        told[num_emitted] = list(zip(found.num_accepted[:, 0].tolist(), found.num_tested[:, 0].tolist(), strict=True))
    assert told == {
        1: [(1, 1), (1, 1)],
        2: [(2, 2), (2, 2)],
        3: [(2, 3), (3, 3)],  # the third token is not what the first drafter would have proposed
        4: [(2, 3), (4, 4)],
        5: [(2, 3), (4, 4)],  # and nobody proposed a fifth
    }


def test_requests_are_told_apart():
    replay = replay_of((everywhere(0), everywhere(3)), (everywhere(4), everywhere(1)))
    told = replay.counterfactual(np.array([1, 0]), np.array([5, 7]), np.array([3, 2]))
    assert told.num_accepted.tolist() == [[3, 0], [1, 2]]
    assert told.num_tested.tolist() == [[3, 1], [2, 2]]


def test_a_drafter_that_proposes_nothing_is_not_tested():
    told = replay_of((everywhere(0), everywhere(0)), num_drafts=0).counterfactual(
        np.array([0]), np.array([0]), np.array([1])
    )
    assert (told.num_accepted.tolist(), told.num_tested.tolist()) == ([[0], [0]], [[0], [0]])


@pytest.fixture
def uneven():
    """One drafter's drafts are always right, the other's never."""
    entries = [HandRequest(60, [everywhere(0) + [0] * 20, everywhere(4) + [4] * 20]) for _ in range(12)]
    return HandTrace(entries, (drafter("block"), drafter("other")))


def run(trace, policy):
    controller = build_controller(policy, trace.drafters)
    return simulate(trace, COST, controller, DECODE_ONLY, ClosedLoop(2, 12), seed=1, record_steps=True)


def test_hedge_settles_on_the_better_drafter_in_the_simulator(uneven):
    steps = run(uneven, "fixed_depth@hedge:rate=2,share=0").steps
    assert (steps["arm"][10:] == 1).all()


def test_keeping_every_drafter_up_to_date_is_paid_for(uneven):
    hedge, fixed = run(uneven, "fixed_depth@hedge:rate=2,share=0"), run(uneven, "fixed_depth@other")
    assert fixed.totals.switch_seconds == 0.0
    # Nearly all the time the second drafter drafts, and the first must compute each emitted token.
    tokens = hedge.totals.num_emitted
    assert hedge.totals.switch_seconds == pytest.approx(tokens * SWITCH["block"] / 8192, rel=0.2)


def test_only_a_controller_that_learns_from_all_is_told(uneven):
    told = []
    for policy in ("fixed_depth@ucb1", "fixed_depth@hedge"):
        controller = build_controller(policy, uneven.drafters)
        observe = controller.drafter_policy.update
        controller.drafter_policy.update = lambda arm, outcome, observe=observe: (
            told.append(outcome.counterfactual is not None),
            observe(arm, outcome),
        )
        simulate(uneven, COST, controller, DECODE_ONLY, ClosedLoop(2, 12))
        assert set(told) == {policy.endswith("hedge")}
        told.clear()
