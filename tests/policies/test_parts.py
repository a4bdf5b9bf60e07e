"""An outcome taken apart."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.core import Counterfactual, Order
from specsim.policies.parts import by_arm, part, parts


@pytest.fixture
def whole(outcome):
    """Four requests of three domains."""
    told = Counterfactual(np.arange(8).reshape(2, 4), np.arange(8, 16).reshape(2, 4))
    made = outcome([3, 2, 1, 3], [3, 1, 0, 2], seconds=0.4)
    draft = replace(made.draft, slots=np.array([5, 6, 7, 8]))
    return replace(made, draft=draft, domains=("b", "a", "b", "c"), requests=(1, 2, 3, 4), counterfactual=told)


def test_the_parts_make_up_the_whole(whole):
    found = dict(parts(whole, whole.domains))
    assert list(found) == ["b", "a", "c"]
    b = found["b"]
    assert b.num_accepted.tolist() == [3, 0]
    assert (b.domains, b.requests) == (("b", "b"), (1, 3))
    assert b.counterfactual.num_accepted.tolist() == [[0, 2], [4, 6]]
    assert b.draft.slots.tolist() == [5, 7]
    assert np.array_equal(b.draft.scores["drawn_prob"], whole.draft.scores["drawn_prob"][[0, 2]])
    for total, of in (
        (whole.seconds.total, lambda own: own.seconds.total),
        (whole.num_tested.sum(), lambda own: own.num_tested.sum()),
        (whole.num_emitted.sum(), lambda own: own.num_emitted.sum()),
    ):
        assert sum(map(of, found.values())) == pytest.approx(total)


def test_one_key_is_the_whole_itself(whole):
    assert next(parts(whole, ["x"] * 4)) == ("x", whole)
    assert next(parts(whole, ())) == ("", whole)


def test_each_drafter_sees_its_own_requests_as_a_step_of_its_own(whole, drafter):
    arms = np.array([1, 0, 1, 1])
    mixed = replace(whole, order=Order(1, 3, arms), draft=replace(whole.draft, arms=arms))
    drafters = (drafter("a"), drafter("b"))
    found = dict(by_arm(mixed, drafters))
    assert list(found) == [1, 0]
    assert found[1].order == Order(1, 3)
    assert (found[1].draft.drafter, found[1].draft.arms) == (drafters[1], None)
    assert found[1].num_verify.tolist() == [3, 1, 3]
    assert found[0].seconds.total == pytest.approx(0.1)


def test_a_part_of_a_plain_step_has_no_draft(whole):
    own = part(replace(whole, draft=None, counterfactual=None), np.array([True, False, False, True]))
    assert (own.draft, own.counterfactual) == (None, None)
    assert own.domains == ("b", "c")
