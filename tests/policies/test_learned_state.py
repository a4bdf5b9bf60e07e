"""A state from a file is taken over only where its values could have been learned."""

import json

import pytest

from specsim.core import DrafterSpec
from specsim.errors import InputError
from specsim.policies.build import build_controller
from specsim.policies.learned_state import check_learned

DRAFTERS = tuple(
    DrafterSpec(name, "ngram", "point_mass", "parallel", ("drawn_prob",), 4, target_fraction=0.0) for name in "ab"
)
BANDITS = ("ucb1", "kl_ucb", "epsilon_greedy", "thompson_beta", "thompson_gaussian", "sliding_window_ucb")
FADING = ("discounted_ucb", "discounted_thompson_beta")
WRONG = (None, "many", float("nan"), float("inf"), -(10**400), 10**400, [], {}, True)


def places(value, path=()):
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for place in range(len(value)):
            yield from places(value[place], (*path, place))
    elif not isinstance(value, (str, type(None))):
        yield path


@pytest.mark.parametrize("wrong", WRONG, ids=lambda value: repr(value)[:6])
@pytest.mark.parametrize("bandit", BANDITS + FADING)
def test_a_number_of_a_state_that_is_none_is_refused_by_its_place(bandit, wrong):
    controller = build_controller(f"dcut@{bandit}", DRAFTERS)
    learned = json.loads(json.dumps(controller.state_dict()))
    numbers = list(places(learned["drafter_policy"]))
    assert numbers
    for path in numbers:
        state = json.loads(json.dumps(learned))
        inside = state["drafter_policy"]
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = wrong
        with pytest.raises(InputError, match=r"this state is not one of") as error:
            controller.load_state_dict(state)
        assert ".".join(map(str, path)) in str(error.value)
        assert len(str(error.value)) < 200


@pytest.mark.parametrize("bandit", BANDITS[:1] + FADING[:1])
def test_counts_below_zero_are_refused(bandit):
    controller = build_controller(f"dcut@{bandit}", DRAFTERS)
    for name in ("exposure", "untested"):
        state = json.loads(json.dumps(controller.state_dict()))
        state["drafter_policy"][name][1] = -1
        with pytest.raises(InputError, match="at least 0"):
            controller.load_state_dict(state)


def test_more_untested_pulls_than_pulls_are_refused():
    controller = build_controller("dcut@ucb1", DRAFTERS)
    state = controller.state_dict()
    state["drafter_policy"] |= {"pulls": [1, 1], "untested": [0, 2]}
    with pytest.raises(InputError, match="more than all pulls"):
        controller.load_state_dict(state)


def test_a_list_of_several_kinds_is_compared_place_by_place():
    check_learned([True, 0.5, 7], [False, 0.0, 0])
    with pytest.raises(ValueError, match=r"1 is a truth value; it must be a number"):
        check_learned([True, True, 7], [False, 0.0, 0])


def test_a_list_that_grew_holds_more_like_its_first():
    with pytest.raises(ValueError, match=r"2 is a text; it must be a number"):
        check_learned([1, 2, "x"], [0])


def test_where_nothing_was_known_before_any_finite_value_will_do():
    check_learned({"new": [1, "x", [2.5]]}, {})
    with pytest.raises(ValueError, match=r"new\.1 is inf"):
        check_learned({"new": [1, float("inf")]}, {})
