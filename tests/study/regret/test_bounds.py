"""Lines that theory draws."""

import math

import numpy as np
import pytest

from specsim.study.regret.bounds import kl, lai_robbins, lines, ucb1_bound

STEPS = np.array([10, 1000])


def test_relative_entropy_at_its_ends():
    assert kl(0.3, 0.3) == 0.0
    assert kl(0.0, 0.5) == pytest.approx(math.log(2))
    assert kl(0.5, 1.0) == math.inf
    assert kl(1.0, 1.0) == 0.0


def test_a_worked_lai_robbins_line():
    # kl(.25, .75) = .5 ln 3
    assert lai_robbins(np.array([0.25, 0.75]), STEPS) == pytest.approx(0.5 / (0.5 * math.log(3)) * np.log(STEPS))


def test_arms_as_good_as_the_best_cost_nothing():
    assert lai_robbins(np.array([0.7, 0.7]), STEPS).tolist() == [0.0, 0.0]
    assert ucb1_bound(np.array([0.7, 0.7, 0.2]), STEPS) == pytest.approx(ucb1_bound(np.array([0.7, 0.2]), STEPS))


def test_lines_that_need_constant_bernoulli_arms_are_drawn_only_there():
    constant = np.tile([0.3, 0.7], (5, 1))
    moving = constant.copy()
    moving[3:] = 0.5
    assert set(lines(constant, STEPS, bernoulli=True)) == {"sqrt(K T ln T)", "UCB1 bound", "Lai-Robbins"}
    assert set(lines(constant, STEPS, bernoulli=False)) == {"sqrt(K T ln T)"}
    assert set(lines(moving, STEPS, bernoulli=True)) == {"sqrt(K T ln T)"}
    assert set(lines(np.full((5, 2), 0.4), STEPS, bernoulli=True)) == {"sqrt(K T ln T)"}
