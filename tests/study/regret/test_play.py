"""Playing: luck by seed, what is lost, what it takes."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.study.regret.bernoulli import bernoulli
from specsim.study.regret.environment import Prices
from specsim.study.regret.play import Clock, checkpoints, play, play_twin


class Scripted:
    """A twin that pulls what it is told, and remembers what it was told."""

    def __init__(self, *pulls):
        self.script, self.step, self.told = [np.array(arms) for arms in pulls], 0, []

    def pull(self, domain, rng):
        self.step += 1
        return self.script[self.step - 1]

    def update(self, arms, feedback):
        self.told.append(feedback)


def test_regret_is_what_the_best_arm_of_each_step_would_have_brought_more():
    environment = bernoulli("one_swap", 6)  # .3 .7 .5, then .7 .3 .5
    played = play_twin(Scripted([1, 0], [1, 1], [2, 2], [1, 0], [0, 0], [2, 0]), environment, [0, 1])
    assert played.checkpoints.tolist() == [1, 2, 3, 4, 5, 6]
    assert played.regret[:, 0] == pytest.approx([0, 0, 0.2, 0.6, 0.6, 0.8])
    assert played.regret[:, 1] == pytest.approx([0.4, 0.4, 0.6, 0.6, 0.6, 0.6])
    assert played.collected == pytest.approx([0.7 + 0.7 + 0.5 + 0.3 + 0.7 + 0.5, 0.3 + 0.7 + 0.5 + 0.7 + 0.7 + 0.7])
    assert played.pulls.tolist() == [[1, 3, 2], [4, 1, 1]]
    assert played.switches.tolist() == [4, 3]


def test_the_best_arm_is_that_of_the_step_itself():
    environment = bernoulli("hidden_improvement", 6)  # .3 .7 .5, then .95 .7 .5
    played = play_twin(Scripted(*[[1]] * 6), environment, [0])
    assert played.regret[:, 0] == pytest.approx([0, 0, 0, 0.25, 0.5, 0.75])


def test_seconds_lost_are_those_spent_less_those_the_fastest_arm_would_need():
    environment = replace(
        bernoulli("stationary", 5),
        prices=Prices(np.array([0.01, 0.02, 0.01]), np.array([0.1, 0.2, 0.3]), np.zeros(3)),
    )
    # Tokens a step 1.3, 1.7, 1.5; a second 130, 85, 150: the third is fastest.
    played = play_twin(Scripted([2], [1], [1], [0], [2]), environment, [0])
    spent = [0.01, 0.01 + 0.02 + 0.2, 0.25, 0.25 + 0.01 + 0.1, 0.36 + 0.01 + 0.3]
    needed = np.cumsum([1.5, 1.7, 1.7, 1.3, 1.5]) / 150
    assert played.seconds_regret[:, 0] == pytest.approx(spent - needed)


def test_an_arm_that_was_idle_pays_for_what_it_missed():
    environment = replace(
        bernoulli("stationary", 5, means=(0.0, 1.0)),
        prices=Prices(np.ones(2), np.zeros(2), np.array([0.5, 0.25])),
    )
    clock, draws = Clock(environment, 1), environment.draw([np.random.default_rng(0)], 0, 5)
    seconds = [clock.step(np.array([arm]), draws, step, "").seconds[0] for step, arm in enumerate((1, 1, 0, 0, 1))]
    # Arm 1 brings 2 tokens a step, arm 0 one: arm 0 missed 4, then arm 1 missed 2.
    assert seconds == [1.0, 1.0, 1.0 + 4 * 0.5, 1.0, 1.0 + 2 * 0.25]


def test_a_policy_is_told_of_its_own_arm_and_of_all():
    environment, twin = bernoulli("stationary", 200), Scripted(*[[0, 2]] * 200)
    play_twin(twin, environment, [5, 6])
    for told in twin.told:
        assert told.accepted.tolist() == [told.all_accepted[0, 0], told.all_accepted[1, 2]]
        assert told.tokens.tolist() == (told.accepted + 1).tolist()
    gain, exposure = twin.told[0].tally("throughput")
    assert exposure.tolist() == [0.01, 0.01]
    assert gain is twin.told[0].tokens
    assert twin.told[0].tally("accepted_fraction")[1].tolist() == [1.0, 1.0]


def test_a_seeds_luck_depends_neither_on_other_seeds_nor_on_the_policy(policy):
    environment = bernoulli("one_swap", 900)
    many = play(policy("ucb1"), environment, [4, 7, 9])
    alone = play(policy("ucb1"), environment, [7])
    assert many.regret[:, 1].tolist() == alone.regret[:, 0].tolist()
    luck = []
    for script in ([[0]] * 900, [[1]] * 900):
        twin = Scripted(*script)
        play_twin(twin, environment, [7])
        luck.append(np.array([told.all_accepted for told in twin.told]))
    assert np.array_equal(*luck)


def test_the_size_of_a_chunk_changes_nothing(policy, monkeypatch):
    environment = bernoulli("three_swaps", 700, switch_seconds=0.001)
    whole = play(policy("thompson_beta"), environment, [0, 1])
    monkeypatch.setattr("specsim.study.regret.play.CHUNK_BYTES", 3 * 8 * 2 * 3 * 7)  # seven steps
    pieces = play(policy("thompson_beta"), environment, [0, 1])
    assert np.array_equal(whole.pulls, pieces.pulls)
    assert np.array_equal(whole.switches, pieces.switches)
    assert whole.regret == pytest.approx(pieces.regret)
    assert whole.seconds_regret == pytest.approx(pieces.seconds_regret)


def test_the_same_seeds_play_the_same_again(policy):
    environment = bernoulli("one_swap", 500)
    first, second = (play(policy("thompson_beta"), environment, [2, 3]) for _ in range(2))
    assert np.array_equal(first.regret, second.regret)
    assert not np.array_equal(first.regret[:, 0], first.regret[:, 1])


def test_checkpoints_are_even_on_a_logarithmic_axis():
    marks = checkpoints(10_000)
    assert (marks[0], marks[-1]) == (1, 10_000)
    assert (np.diff(marks) > 0).all()
    assert (marks[-20:] / marks[-21:-1]).std() < 0.01
    assert checkpoints(1).tolist() == [1]
