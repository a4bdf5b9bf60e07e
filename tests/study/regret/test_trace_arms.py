"""Arms drawn from a trace whose domain changes."""

import numpy as np
import pytest

from specsim.cost.examples import linear_table
from specsim.errors import InputError
from specsim.study.regret.play import play
from specsim.study.regret.trace_arms import read_positions, trace_arms
from tests.study.regret.conftest import SmallTrace


def test_domains_are_served_in_turn_and_again(small_trace):
    environment = trace_arms(small_trace, 400, cycles=2)
    assert [environment.domain(step) for step in (0, 99, 100, 199, 200, 300, 399)] == (
        ["chat", "chat", "code", "code", "chat", "code", "code"]
    )
    assert environment.truth.changes == [100, 200, 300]


def test_an_arms_truth_is_the_ratio_of_its_totals_in_the_domain(small_trace):
    environment = trace_arms(small_trace, 400)
    for domain, step in ((0, 0), (1, 100)):
        for arm in range(2):
            blocks = [small_trace.blocks(index, arm) for index in range(3 * domain, 3 * domain + 3)]
            accepted = sum(int(block.num_accepted.sum()) for block in blocks)
            rejected = sum(int((block.num_accepted < block.num_verified).sum()) for block in blocks)
            assert environment.truth.acceptance[step, arm] == pytest.approx(accepted / (accepted + rejected))
    assert environment.truth.acceptance[[0, 100]].argmax(axis=1).tolist() == [1, 0]


def test_draws_on_average_are_the_truth(small_trace):
    environment = trace_arms(small_trace, 4000, cycles=1, batch=2)
    draws = environment.draw([np.random.default_rng(seed) for seed in range(4)], 0, 4000)
    for part in (slice(0, 2000), slice(2000, 4000)):
        tested = draws.tested[part].sum(axis=(0, 1))
        truth = environment.truth
        assert draws.accepted[part].sum(axis=(0, 1)) / tested == pytest.approx(truth.acceptance[part][0], abs=0.02)
        assert draws.tokens[part].mean(axis=(0, 1)) == pytest.approx(truth.tokens[part][0], abs=0.06)


def test_every_arm_meets_the_same_positions(small_trace):
    twins = SmallTrace(chances=((0.5, 0.5), (0.5, 0.5)))
    twins.blocks = lambda index, drafter: small_trace.blocks(index, 1)  # both drafters are the same
    draws = trace_arms(twins, 100).draw([np.random.default_rng(0)], 0, 100)
    assert np.array_equal(draws.accepted[..., 0], draws.accepted[..., 1])


def test_draws_do_not_depend_on_how_they_are_chunked(small_trace):
    environment, whole_rng, rng = trace_arms(small_trace, 400), np.random.default_rng(1), np.random.default_rng(1)
    whole = environment.draw([whole_rng], 0, 400)
    pieces = [environment.draw([rng], start, start + 40) for start in range(0, 400, 40)]
    assert np.array_equal(whole.accepted, np.concatenate([piece.accepted for piece in pieces]))


@pytest.mark.parametrize("most", [1, 5_000])
def test_draws_do_not_depend_on_how_much_is_in_memory_at_once(small_trace, monkeypatch, most):
    environment = trace_arms(small_trace, 60, batch=7)
    whole = environment.draw([np.random.default_rng(seed) for seed in range(2)], 3, 50)
    monkeypatch.setattr("specsim.study.regret.trace_arms.PIECE_BYTES", most)
    pieces = environment.draw([np.random.default_rng(seed) for seed in range(2)], 3, 50)
    for name in ("accepted", "tested", "tokens"):
        assert np.array_equal(getattr(whole, name), getattr(pieces, name))


def test_the_end_of_an_output_tests_no_further(small_trace):
    found = read_positions(small_trace, 0)
    last = found.accepted[39], found.tested[39], found.tokens[39]
    assert (last[1] == 1).all()
    assert (last[2] == 1).all()


def test_prices_come_from_the_table(small_trace):
    cost = linear_table(0.008, 0.0001, drafters={"deep": 0.004, "short": 0.001}, max_depth=4)
    prices = trace_arms(small_trace, 400, batch=2, cost=cost).prices
    assert prices.seconds == pytest.approx([0.008 + 0.0001 * 10 + 0.004, 0.008 + 0.0001 * 6 + 0.001])
    assert prices.catch_up_seconds == pytest.approx([0.004 / 8192, 0.001 / 8192])
    assert prices.switch_seconds.tolist() == [0.0, 0.0]


def test_a_state_for_each_domain_follows_the_changes(policy, small_trace):
    environment = trace_arms(small_trace, 4000, cycles=8, batch=4)
    lost = {
        text: play(policy(text, 2), environment, list(range(20))).regret[-1].mean()
        for text in ("thompson_beta", "contextual:policy=thompson_beta")
    }
    assert lost["contextual:policy=thompson_beta"] < 0.1 * lost["thompson_beta"]


def test_what_makes_no_sense_is_refused(small_trace):
    with pytest.raises(InputError, match="5 steps are too few for 3 cycles of 2 domains"):
        trace_arms(small_trace, 5, cycles=3)

    class Lonely(SmallTrace):
        drafters = SmallTrace().drafters[:1]

    with pytest.raises(InputError, match=r"one drafter \(deep\)"):
        trace_arms(Lonely(), 100)
