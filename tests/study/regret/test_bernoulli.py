"""Bernoulli arms and how they change."""

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.study.regret.bernoulli import COURSES, bernoulli


def means(name, step, num_steps=1000):
    return bernoulli(name, num_steps).truth.acceptance[step].round(9).tolist()


def test_stationary_arms_never_change():
    assert bernoulli("stationary", 1000).truth.changes == []


def test_best_and_worst_change_places_in_the_middle():
    assert bernoulli("one_swap", 1000).truth.changes == [500]
    assert (means("one_swap", 499), means("one_swap", 500)) == ([0.3, 0.7, 0.5], [0.7, 0.3, 0.5])


def test_after_each_quarter_another_arm_is_best():
    environment = bernoulli("three_swaps", 1000)
    assert environment.truth.changes == [250, 500, 750]
    assert environment.truth.acceptance[[0, 250, 500, 750]].argmax(axis=1).tolist() == [1, 0, 2, 1]
    assert means("three_swaps", 500) == [0.3, 0.5, 0.7]


def test_two_arms_swap_too():
    environment = bernoulli("three_swaps", 1000, means=(0.2, 0.6))
    assert environment.truth.acceptance[[0, 250, 500, 750]].argmax(axis=1).tolist() == [1, 0, 1, 1]


def test_drift_is_a_straight_line_from_first_to_last():
    assert (means("slow_drift", 0), means("slow_drift", 999)) == ([0.3, 0.7, 0.5], [0.7, 0.3, 0.5])
    assert bernoulli("slow_drift", 1001).truth.acceptance[500] == pytest.approx([0.5, 0.5, 0.5])


def test_the_worst_arm_improves_unseen():
    assert means("hidden_improvement", 499) == [0.3, 0.7, 0.5]
    assert means("hidden_improvement", 500) == [0.95, 0.7, 0.5]


@pytest.mark.parametrize("name", COURSES)
def test_every_environment_says_in_one_sentence_what_happens(name):
    assert bernoulli(name, 100).description.endswith(".")


def test_arms_pass_as_often_as_they_should_and_independently():
    environment = bernoulli("one_swap", 4000)
    draws = environment.draw([np.random.default_rng(seed) for seed in range(5)], 0, 4000)
    assert draws.accepted.shape == draws.tested.shape == (4000, 5, 3)
    assert draws.accepted[:2000].mean(axis=(0, 1)) == pytest.approx([0.3, 0.7, 0.5], abs=0.015)
    assert draws.accepted[2000:].mean(axis=(0, 1)) == pytest.approx([0.7, 0.3, 0.5], abs=0.015)
    assert np.array_equal(draws.tokens, draws.accepted + 1)
    flat = draws.accepted[:2000].reshape(-1, 3)
    assert np.abs(np.corrcoef(flat.T) - np.eye(3)).max() < 0.03


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"name": "storm"}, "unknown environment 'storm': allowed stationary"),
        ({"name": "stationary", "num_steps": 3}, "3 steps are too few"),
        ({"name": "stationary", "means": (0.5,)}, r"means 0.5: allowed two or more numbers in \[0, 1\]"),
        ({"name": "stationary", "means": (0.5, 1.5)}, "means 0.5/1.5"),
        ({"name": "stationary", "seconds": 0.0}, "a step of 0 s"),
        ({"name": "stationary", "switch_seconds": -1.0}, "a switch of -1 s"),
    ],
)
def test_what_makes_no_sense_is_refused(options, fault):
    with pytest.raises(InputError, match=fault):
        bernoulli(**options)
