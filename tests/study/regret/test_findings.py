"""What is said in words."""

import math
from dataclasses import replace

import pytest

from specsim.study.regret.findings import findings


@pytest.fixture
def place(result):
    """An environment, and a maker of what a policy lost in it."""
    environment, template = result.environments[1], result.of("one_swap")[0]

    def lost(policy, regret, half=1.0, seconds=None, switches=10.0):
        seconds = regret / 100 if seconds is None else seconds
        return replace(
            template,
            policy=policy,
            regret=regret,
            regret_interval=(regret - half, regret + half),
            seconds_regret=seconds,
            seconds_interval=(seconds * 0.99, seconds * 1.01),
            switches=switches,
        )

    return replace(environment, fixed_regret=1000.0), lost


def test_the_least_and_the_next_are_named_with_their_intervals(place):
    environment, lost = place
    assert findings([environment], [lost("a", 40.0), lost("b", 20.0), lost("c", 30.0)]) == [
        "one_swap: b loses least (20.0, 19.0 to 21.0), then c (30.0, 29.0 to 31.0)."
    ]


def test_those_whose_intervals_meet_are_not_told_apart(place):
    environment, lost = place
    assert findings([environment], [lost("a", 20.0, 3.0), lost("b", 24.0, 2.0), lost("c", 40.0)]) == [
        "one_swap: a loses least (20.0, 17.0 to 23.0), not distinguishable from b."
    ]


def test_those_that_lose_many_times_as_much_are_named(place):
    environment, lost = place
    assert findings([environment], [lost("a", 20.0), lost("b", 80.5), lost("c", 500.0), lost("d", 79.5)]) == [
        "one_swap: a loses least (20.0, 19.0 to 21.0), then d (79.5, 78.5 to 80.5);"
        " b (80.5) and c (500) lose more than 4 times as much."
    ]


def test_losing_as_much_as_the_best_fixed_arm_is_not_losing_more(place):
    environment, lost = place
    assert len(findings([environment], [lost("a", 900.0), lost("b", 1000.0 + 1e-10)])) == 1


def test_those_that_learning_only_hurts_are_named(place):
    environment, lost = place
    sentences = findings([environment], [lost("a", 900.0), lost("b", 1100.0)])
    assert sentences[1] == f"one_swap: never switching from {environment.best_fixed} would do better than b."
    assert len(findings([replace(environment, fixed_regret=0.0)], [lost("a", 900.0), lost("b", 1100.0)])) == 1


def test_seconds_are_told_where_switching_changes_the_winner(place):
    environment, lost = place
    sentences = findings([environment], [lost("a", 20.0, seconds=0.9, switches=700), lost("b", 50.0, seconds=0.5)])
    assert sentences[1] == (
        "one_swap: counted in seconds, b loses least: 0.50 s with 10 switches, and a 0.90 s with 700."
    )
    assert len(findings([environment], [lost("a", 20.0, seconds=0.5), lost("b", 50.0, seconds=0.9)])) == 1
    # Fewer seconds, but by less than the intervals are wide.
    assert len(findings([environment], [lost("a", 20.0, seconds=0.5), lost("b", 50.0, seconds=0.499)])) == 1


def test_a_policy_that_is_told_of_every_arm_is_not_ranked_with_the_others(place):
    environment, lost = place
    told = replace(lost("h", 1.0), full_information=True)
    assert findings([environment], [lost("a", 20.0), told, lost("b", 50.0)]) == [
        "one_swap: a loses least (20.0, 19.0 to 21.0), then b (50.0, 49.0 to 51.0). Told of every arm: h (1.0)."
    ]
    assert findings([environment], [told]) == []


def test_a_single_policy_is_compared_with_nothing(place):
    environment, lost = place
    assert findings([environment], [lost("a", 20.0)]) == []


def test_an_unknown_interval_is_not_written(place):
    environment, lost = place
    own = [replace(lost(name, regret), regret_interval=(math.nan, math.nan)) for name, regret in (("a", 20), ("b", 30))]
    assert findings([environment], own)[0] == "one_swap: a loses least (20.0), then b (30.0)."
