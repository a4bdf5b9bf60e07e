"""Drafting on while the predicted goodput of the batch grows."""

import numpy as np
import pytest

from specsim.core import StepCost
from specsim.policies.build import build_controller


def depth(rows, seconds, proposal, num_drafts=None):
    """Where drafting stops: `seconds` of a step drafted and verified to depth 0, 1, ..."""
    draft = proposal(rows, num_drafts)
    controller = build_controller("adaspec", [draft.drafter])

    def price(at):
        budgets = np.full(len(rows) * at + 1, 99.0)  # only what would be verified may be looked up
        budgets[-1] = seconds[at]
        return StepCost(budgets)

    return controller.draft_lengths(draft, price).tolist()


def test_it_stops_behind_the_first_position_that_lowers_the_goodput(proposal):
    # Tokens of two requests: 2, 3.6, 4.88; goodput 2, 2.4, 2.44 and then 5.9 / 3 < 2.44.
    rows = [[0.8, 0.8, 0.8]] * 2
    assert depth(rows, [1, 1.5, 2, 3], proposal) == [3, 3]
    assert depth(rows, [1, 1.5, 2.1, 2.2], proposal) == [2, 2]  # 2.4 > 4.88 / 2.1: the third is never made
    assert depth(rows, [1, 1.5, 2, 2.3], proposal) == [3, 3]


def test_the_first_position_is_compared_with_a_plain_step(proposal):
    assert depth([[0.5, 1.0, 1.0]], [1, 1.6, 1.6, 1.6], proposal) == [1]
    assert depth([[0.5, 1.0, 1.0]], [1, 1.4, 1.4, 1.4], proposal) == [3]


def test_an_equal_goodput_is_no_fall(proposal):
    assert depth([[1.0, 1.0]], [1, 2, 3], proposal) == [2]


def test_requests_count_together(proposal):
    # One sure and one lost request: 2, 3, 4 tokens.
    rows = [[1.0, 1.0], [0.0, 0.0]]
    assert depth(rows, [1, 1.2, 1.4], proposal) == [2, 2]
    assert depth(rows, [1, 1.6, 1.7], proposal) == [1, 1]


def test_drafts_that_were_not_found_cost_and_bring_nothing(proposal):
    draft = proposal([[0.9, 0.9], [0.9, 0.0]], [2, 1])
    controller = build_controller("adaspec", [draft.drafter])
    seconds = {0: [1, 9, 9], 1: [9, 9, 1.1], 2: [9, 9, 9, 1.2, 9]}  # three drafts in all at depth 2
    price = {at: StepCost(np.array(values, dtype=float)) for at, values in seconds.items()}
    assert controller.draft_lengths(draft, price.__getitem__).tolist() == [2, 1]


@pytest.mark.parametrize("structure", ["parallel", "autoregressive"])
def test_it_is_exact_though_it_reads_the_tokens_it_drew(structure, drafter):
    assert not build_controller("adaspec", [drafter(law="sampled", structure=structure)]).lossy
