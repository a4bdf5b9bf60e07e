from __future__ import annotations

import numpy as np
import pytest

from specsim.trace.hardness import Spread, calibrated_confidence, solve_hazards


def test_without_any_spread_the_hazard_is_minus_the_logarithm_of_the_rate():
    hazards = solve_hazards((0.8, 0.5, 1.0), Spread(0.0, 0.0), 0.0, [(1.0, 1.0)])
    assert np.exp(-hazards) == pytest.approx([0.8, 0.5, 1.0], abs=1e-9)


def test_hidden_hardness_alone_solves_in_closed_form():
    hazards = solve_hazards((0.8,), Spread(0.0, 0.0), 2.0, [(1.0, 1.0)])
    assert hazards == pytest.approx([(0.8**-2.0 - 1.0) / 2.0])


def test_seen_hardness_alone_solves_in_closed_form():
    hazards = solve_hazards((0.8,), Spread(0.0, 2.0), 0.0, [(1.0, 1.0)])  # the mean of exp(-x h) over a Gamma x
    assert hazards == pytest.approx([(0.8**-2.0 - 1.0) / 2.0], rel=1e-6)


def test_domains_average_to_the_declared_rate():
    hazards = solve_hazards((0.7,), Spread(0.0, 0.0), 0.0, [(0.25, 2.0), (0.75, 0.5)])
    assert 0.25 * np.exp(-2.0 * hazards) + 0.75 * np.exp(-0.5 * hazards) == pytest.approx([0.7])


def test_deeper_hazards_answer_to_the_easier_requests_that_survive():
    flat = solve_hazards((0.7,) * 6, Spread(0.5, 0.0), 0.0, [(1.0, 1.0)])
    assert (np.diff(flat) > 0).all()


def test_rates_of_nothing_and_everything_are_reached():
    hazards = solve_hazards((1.0, 0.0), Spread(0.1, 1.0), 1.0, [(1.0, 1.0)])
    assert hazards[0] == 0.0
    assert calibrated_confidence(hazards[1:], 1.0) < 1e-6


@pytest.mark.parametrize("variance", [0.0, 0.05, 0.5, 0.9])
def test_difficulty_has_mean_one_and_the_variance_declared(variance):
    quantiles = (np.arange(200_000) + 0.5) / 200_000
    difficulty = Spread(variance, 0.0).difficulty(quantiles)
    assert difficulty.mean() == pytest.approx(1.0, abs=1e-3)
    assert difficulty.var() == pytest.approx(variance, abs=1e-3)


@pytest.mark.parametrize("spread", [Spread(0.0, 4.0), Spread(0.3, 1.0), Spread(0.9, 0.25)])
@pytest.mark.parametrize("hidden", [0.0, 0.5, 4.0])
def test_sampled_requests_and_tokens_reach_the_declared_rates(spread, hidden):
    rates = (0.85, 0.8, 0.75, 0.8)
    rng = np.random.default_rng(3)
    hazards = solve_hazards(rates, spread, hidden, [(1.0, 1.0)])
    difficulty = spread.difficulty(rng.random(400_000))[:, None]
    known = rng.standard_gamma(1 / spread.token, (400_000, 4)) * spread.token
    chance = np.cumprod(calibrated_confidence(difficulty * known * hazards, hidden), axis=1).mean(axis=0)
    assert chance == pytest.approx(np.cumprod(rates), abs=3e-3)
