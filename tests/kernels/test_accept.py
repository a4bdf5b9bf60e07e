"""Acceptance of verified drafts, on each array library."""

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.kernels.accept import accept

A, B = 0, 1


def num_accepted(candidates, uniform):
    return np.asarray(accept(candidates, uniform)).tolist()


def chance(candidates, token, target, draft=None, size=1000):
    """Share of evenly spread uniforms at which one draft is accepted."""
    held = candidates([[token]] * size, target=[[target] * 2] * size, draft=None if draft is None else [[draft]] * size)
    return accept(held, (np.arange(size)[:, None] + 0.5) / size).mean()


def test_case_1_a_greedy_draft_is_accepted_with_the_targets_probability(candidates):
    assert chance(candidates, A, [0.3, 0.7]) == pytest.approx(0.30, abs=1e-3)
    assert chance(candidates, A, [0.3, 0.7], [0.6, 0.4]) == pytest.approx(0.50, abs=1e-3)  # a soft law's mistake


@pytest.mark.parametrize(
    ("draft", "acceptance"), [((0.625, 0.375, 0.0), 0.775), ((0.5, 0.3, 0.2), 0.875)], ids=["filtered", "raw"]
)
def test_case_2_the_law_before_the_filter_accepts_too_much(candidates, draft, acceptance):
    drawn = (0.625, 0.375, 0.0)
    by_token = [chance(candidates, token, [0.4, 0.4, 0.2], draft) for token in range(3)]
    assert np.dot(drawn, by_token) == pytest.approx(acceptance, abs=1e-3)


def test_case_3_at_uniform_zero_an_impossible_token_is_rejected_and_an_agreed_one_accepted(candidates, library):
    zero = library.asarray(np.zeros((2, 1)))
    laws = {"target": [[[0.0, 1.0]] * 2, [[0.5, 0.5]] * 2], "xp": library}
    assert num_accepted(candidates([[A], [A]], **laws), zero) == [0, 1]
    assert num_accepted(candidates([[A], [A]], draft=[[[0.5, 0.5]]] * 2, **laws), zero) == [0, 1]


def test_where_target_and_draft_agree_every_uniform_accepts(candidates, library):
    for dtype in (np.float32, np.float64):
        near_one = library.asarray(np.array([[np.nextafter(dtype(1), dtype(0))]], dtype=dtype))
        laws = {"target": [[[0.3, 0.7]] * 2], "draft": [[[0.3, 0.7]]]}
        assert num_accepted(candidates([[B]], xp=library, dtype=dtype, **laws), near_one) == [1]


def test_acceptance_ends_at_the_first_draft_that_fails(candidates, library):
    target = [[[0.5, 0.5]] * 4] * 4
    uniform = library.asarray(np.array([[0.1, 0.9, 0.1], [0.9, 0.1, 0.1], [0.1, 0.1, 0.1], [0.1, 0.1, 0.9]]))
    assert num_accepted(candidates([[A, B, A]] * 4, target=target, xp=library), uniform) == [1, 0, 3, 2]


@pytest.mark.parametrize("padding", [-1, 99])
def test_case_12_padding_beyond_what_is_verified_is_never_read(candidates, library, padding):
    target = np.full((2, 6, 2), np.nan)
    target[0, :3] = target[1, :1] = (0.0, 1.0)
    tokens = [[B, B, B, padding, padding], [padding] * 5]
    held = candidates(tokens, num_verify=[3, 0], target=target, draft=np.full((2, 5, 2), 1.0), xp=library)
    assert num_accepted(held, library.asarray(np.zeros((2, 5)))) == [3, 0]


def test_a_step_without_drafts_accepts_none(candidates, library):
    held = candidates(np.zeros((2, 0)), num_verify=[0, 0], target=[[[0.5, 0.5]]] * 2, xp=library)
    assert num_accepted(held, library.asarray(np.zeros((2, 0)))) == [0, 0]


@pytest.mark.parametrize("whose", ["target", "draft"])
def test_a_law_of_nan_is_refused_with_request_and_position(candidates, library, whose):
    laws = {"target": np.full((3, 3, 2), 0.5), "draft": np.full((3, 2, 2), 0.5)}
    laws[whose][2, 1] = np.nan
    with pytest.raises(InputError, match=f"the {whose} law of request 2 at position 1 holds NaN"):
        accept(candidates([[A, A]] * 3, xp=library, **laws), library.asarray(np.zeros((3, 2))))
