"""The token after the accepted drafts, on each array library."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.errors import InputError
from specsim.kernels.accept import accept
from specsim.kernels.candidates import Candidates
from specsim.kernels.recover import draw, recover, recovery_weights

A, B, C = 0, 1, 2
ALMOST_ONE = 1 - 2.0**-24
GRID = (np.arange(1000) + 0.5) / 1000


def spread(held):
    """One request's candidates, once for every uniform of the grid."""
    laws = (held.target_law, held.draft_law)
    rows = [None if law is None else np.repeat(law, len(GRID), axis=0) for law in laws]
    tokens, lengths = np.repeat(held.tokens, len(GRID), axis=0), np.repeat(held.num_verify, len(GRID))
    return Candidates(tokens, lengths, *rows)


def shares(held, accepted, size):
    """Share of each token over evenly spread uniforms, for one request."""
    drawn = recover(spread(held), np.full(len(GRID), accepted), GRID.astype(held.target_law.dtype))
    return np.bincount(drawn, minlength=size) / len(GRID)


def emitted(make, drawn, target, draft):
    """Law of one emitted token when one draft with law `drawn` is verified as if its law were `draft`."""
    law = np.zeros(len(target))
    for token, chance in enumerate(drawn):
        held = make([[token]], target=[[list(target)] * 2], draft=None if draft is None else [[list(draft)]])
        accepts = accept(spread(held), GRID[:, None]).mean()
        law[token] += chance * accepts
        law += chance * (1 - accepts) * shares(held, 0, len(target))
    return law


def test_case_1_a_greedy_draft_verified_as_a_certain_token_keeps_the_target(candidates):
    assert emitted(candidates, (1, 0), (0.3, 0.7), None) == pytest.approx([0.3, 0.7], abs=2e-3)
    assert emitted(candidates, (1, 0), (0.3, 0.7), (0.6, 0.4)) == pytest.approx([0.5, 0.5], abs=2e-3)


def test_case_2_the_law_before_the_filter_is_the_wrong_law(candidates):
    drawn, target = (0.625, 0.375, 0.0), (0.4, 0.4, 0.2)
    assert emitted(candidates, drawn, target, drawn) == pytest.approx(target, abs=2e-3)
    assert emitted(candidates, drawn, target, (0.5, 0.3, 0.2)) == pytest.approx((0.5, 0.5, 0.0), abs=2e-3)


def test_a_rejected_certain_token_is_never_recovered(candidates, library):
    held = candidates([[B]], target=[[[0.25, 0.5, 0.25]] * 2], xp=library)
    weights = np.asarray(recovery_weights(held, library.asarray(np.array([0]))))
    assert weights.tolist() == [[0.25, 0.0, 0.25]]


def test_a_bonus_is_drawn_from_the_target_at_its_own_position(candidates, library):
    target = [[[0.2, 0.8], [0.6, 0.4], [0.1, 0.9]]] * 3
    held = candidates([[A, A]] * 3, num_verify=[0, 1, 2], target=target, draft=[[[0.5, 0.5]] * 2] * 3, xp=library)
    weights = np.asarray(recovery_weights(held, library.asarray(np.array([0, 1, 2]))))
    assert weights.tolist() == [[0.2, 0.8], [0.6, 0.4], [0.1, 0.9]]


@pytest.mark.parametrize("vocabulary", [8193, 10000, 151936])
def test_case_4_a_residual_away_from_the_end_never_draws_beyond_the_vocabulary(candidates, vocabulary):
    rng = np.random.default_rng(vocabulary)
    target = np.zeros(vocabulary, np.float32)
    target[:100] = rng.dirichlet(np.ones(100)).astype(np.float32)
    draft = np.zeros(vocabulary, np.float32)
    draft[-1] = 1.0
    held = candidates([[vocabulary - 1]], target=[[target] * 2], draft=[[draft]], dtype=np.float32)
    for uniform in (0.0, 0.5, 1 - 2.0**-11, ALMOST_ONE):
        token = int(recover(held, np.array([0]), np.array([uniform], np.float32))[0])
        assert 0 <= token < 100
        assert target[token] > 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_case_6_laws_equal_up_to_rounding_and_a_forced_rejection_draw_from_the_target(candidates, dtype):
    target = np.array([0.2, 0.5, 0.25, 0.05], dtype)
    draft = np.nextafter(target, dtype(1))
    draft[[0, 3]] = np.nextafter(target[[0, 3]], dtype(0))  # what is left over lies at the first and the last token
    held = candidates([[B]], target=[[target] * 2], draft=[[draft]], dtype=dtype)
    if dtype is np.float32:
        assert accept(held, np.array([[ALMOST_ONE]], dtype)).tolist() == [0]
    assert recovery_weights(held, np.array([0])).tolist() == [target.tolist()]
    assert shares(held, 0, 4) == pytest.approx(target, abs=2e-3)
    assert int(recover(held, np.array([0]), np.array([ALMOST_ONE], dtype))[0]) == 3


def test_case_6_identical_laws_and_a_forced_rejection_draw_from_the_target(candidates, library):
    held = candidates([[B]], target=[[[0.25, 0.75]] * 2], draft=[[[0.25, 0.75]]], xp=library)
    weights = np.asarray(recovery_weights(held, library.asarray(np.array([0]))))
    assert weights.tolist() == [[0.25, 0.75]]


def test_a_difference_beyond_rounding_is_a_residual(candidates):
    target, draft = [0.5, 0.5], [0.5 * (1 - 1e-12), 0.5 * (1 + 1e-12)]
    held = candidates([[B]], target=[[target] * 2], draft=[[draft]])
    assert recovery_weights(held, np.array([0]))[0, 0] > 0
    assert recovery_weights(held, np.array([0]))[0, 1] == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1e-30, 0.1, 0.25, 1.0]), min_size=1, max_size=9).filter(any), st.data())
def test_only_a_token_that_weighs_something_is_drawn(weights, data):
    for dtype in (np.float32, np.float64):
        below_one = float(np.nextafter(dtype(1), dtype(0)))
        uniform = data.draw(st.sampled_from([0.0, 0.3, 0.5, ALMOST_ONE, below_one]))
        row = np.array([weights], dtype)
        token = int(draw(row, np.array([uniform], dtype))[0])
        assert row[0, token] > 0


@pytest.mark.parametrize("rises_at", [0, 2, 4])
def test_a_scan_that_rises_where_nothing_weighs_draws_no_such_token(monkeypatch, rises_at):
    class ParallelScan:
        """numpy, but for sums that round up from one position on, as those of a tree may."""

        def __getattr__(self, name):
            return getattr(np, name)

        def cumulative_sum(self, values, axis):
            sums = np.cumsum(values, axis=axis)
            sums[:, rises_at:] *= 1 + 2.0**-50
            sums[:, rises_at] += 2.0**-30
            return sums

    monkeypatch.setattr("specsim.kernels.recover.array_namespace", lambda *arrays: ParallelScan())
    weights = np.array([[0.0, 0.25, 0.0, 0.75, 0.0]])
    for uniform in (0.0, 0.25, np.nextafter(1.0, 0.0)):
        assert weights[0, int(draw(weights, np.array([uniform]))[0])] > 0


def test_a_draw_follows_the_cumulated_weights(library):
    weights = library.asarray(np.array([[0.0, 1.0, 0.0, 3.0]] * 4))
    uniform = library.asarray(np.array([0.0, 0.2499, 0.25, 0.9999]))
    assert np.asarray(draw(weights, uniform)).tolist() == [1, 1, 3, 3]


def test_requests_keep_their_own_laws(candidates, library):
    target = [[[1.0, 0.0, 0.0]] * 3, [[0.0, 1.0, 0.0]] * 3, [[0.0, 0.0, 1.0]] * 3]
    held = candidates([[A, A]] * 3, num_verify=[2, 1, 2], target=target, xp=library)
    drawn = recover(held, library.asarray(np.array([2, 0, 1])), library.asarray(np.array([0.5, 0.5, 0.5])))
    assert np.asarray(drawn).tolist() == [A, B, C]


def test_what_lies_beyond_the_verified_drafts_is_never_read(candidates, library):
    target, draft = np.full((2, 3, 2), np.nan), np.full((2, 2, 2), np.nan)
    target[0, 1] = target[1, 0] = (0.5, 0.5)
    held = candidates([[A, -1], [-1, -1]], num_verify=[1, 0], target=target, draft=draft, xp=library)
    weights = recovery_weights(held, library.asarray(np.array([1, 0])))
    assert np.asarray(weights).tolist() == [[0.5, 0.5]] * 2


def test_a_step_without_drafts_draws_from_the_target(candidates, library):
    held = candidates(np.zeros((1, 0)), num_verify=[0], target=[[[0.0, 1.0]]], xp=library)
    assert np.asarray(recover(held, library.asarray(np.array([0])), library.asarray(np.array([0.0])))).tolist() == [B]


@pytest.mark.parametrize(("whose", "accepted", "position"), [("target", 1, 1), ("target", 2, 2), ("draft", 1, 1)])
def test_case_5_a_law_of_nan_is_refused_with_request_and_position(candidates, library, whose, accepted, position):
    laws = {"target": np.full((3, 3, 2), 0.5), "draft": np.full((3, 2, 2), 0.5)}
    laws[whose][1, position, 0] = np.nan
    held = candidates([[A, A]] * 3, xp=library, **laws)
    with pytest.raises(InputError, match=f"the {whose} law of request 1 at position {position} holds NaN"):
        recover(held, library.asarray(np.array([0, accepted, 0])), library.asarray(np.array([0.5, 0.5, 0.5])))
