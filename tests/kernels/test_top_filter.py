"""Top-k and nucleus filters, on each array library, against a loop over each row."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.errors import InputError
from specsim.kernels.top_filter import top_filter


def kept(logits, top_k=0, top_p=1.0, temperature=None, xp=np, dtype=np.float64):
    """For each row, the tokens that stay."""
    logits = np.array(logits, dtype)
    rows = len(logits)
    arrays = [np.broadcast_to(np.array(top_k), rows), np.broadcast_to(np.array(top_p), rows).astype(np.float32)]
    if temperature is not None:
        arrays.append(np.broadcast_to(np.array(temperature), rows).astype(np.float32))
    filtered = np.asarray(top_filter(xp.asarray(logits), *(xp.asarray(array.copy()) for array in arrays)))
    stays = filtered > -np.inf
    np.testing.assert_array_equal(filtered[stays], logits[stays])
    return [np.flatnonzero(row).tolist() for row in stays]


def law(*probabilities):
    return np.log(np.array(probabilities))


def loop(row, top_k, top_p, temperature):
    """One row, token by token from the most likely one."""
    scaled = [value / (temperature or 1.0) for value in row]
    ranked = sorted(scaled, reverse=True)
    least = ranked[top_k - 1] if 0 < top_k < len(row) else ranked[-1]
    weights = [math.exp(value - ranked[0]) for value in ranked if value >= least]
    if top_p < 1:
        reached, inside = 0.0, 0
        for weight in weights:
            if reached >= top_p * sum(weights) and inside:
                break
            reached, inside = reached + weight, inside + 1
        least = ranked[inside - 1]
    return [token for token, value in enumerate(scaled) if value >= least]


def test_top_k_keeps_the_k_most_likely_of_each_row_and_zero_keeps_all(library):
    logits = [[0.1, 3.0, 2.0, -1.0]] * 5
    assert kept(logits, [1, 2, 3, 0, 9], xp=library) == [[1], [1, 2], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]]


def test_the_nucleus_is_the_fewest_tokens_that_reach_the_share(library):
    row = law(0.5, 0.25, 0.125, 0.125)
    assert kept([row] * 5, 0, [0.4, 0.5, 0.6, 0.75, 1.0], xp=library) == [[0], [0], [0, 1], [0, 1], [0, 1, 2, 3]]


def test_the_nucleus_is_of_what_top_k_keeps(library):
    row = law(0.4, 0.3, 0.2, 0.1)
    assert kept([row, row], [0, 2], 0.55, xp=library) == [[0, 1], [0]]  # .4 of .7 is above .55


def test_temperature_widens_the_nucleus_and_changes_no_logit(library):
    row = law(0.64, 0.32, 0.03, 0.01)
    assert kept([row] * 4, 0, 0.7, [1.0, 4.0, 0.25, 0.0], xp=library) == [[0, 1], [0, 1, 2], [0], [0, 1]]


def test_tokens_level_with_the_last_one_kept_all_stay(library):
    assert kept([[2.0, 1.0, 1.0, 0.0]], 2, xp=library) == [[0, 1, 2]]
    assert kept([law(0.4, 0.2, 0.2, 0.2)], 0, 0.5, xp=library) == [[0, 1, 2, 3]]


def test_the_most_likely_token_stays_however_small_the_share(library):
    assert kept([[1.0, 1.5, 0.0]], 0, 1e-30, xp=library) == [[1]]


def test_tokens_that_are_out_already_stay_out(library):
    row = [0.0, -np.inf, 1.0, -np.inf]
    assert kept([row] * 3, [3, 0, 1], [1.0, 0.99, 1.0], xp=library) == [[0, 2], [0, 2], [2]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_type_of_the_logits_is_kept(dtype, library):
    logits = library.asarray(np.array([[1.0, 2.0]], dtype))
    filtered = top_filter(logits, library.asarray(np.array([1])), library.asarray(np.array([1.0])))
    assert filtered.dtype == logits.dtype


def test_half_types_are_filtered_by_their_exact_values():
    torch = pytest.importorskip("torch", reason="torch comes with the extra `live`")
    logits = torch.tensor([[1.0, 2.0, 3.0, 2.0]], dtype=torch.bfloat16)
    filtered = top_filter(logits, torch.tensor([2]), torch.tensor([0.9]), torch.tensor([2.0]))
    assert filtered.dtype == torch.bfloat16
    assert torch.isfinite(filtered).tolist() == [[False, True, True, True]]


def test_nan_stays_for_verification_to_find_and_leaves_other_rows_alone(library):
    for top_k, top_p in ((0, 1.0), (1, 1.0), (0, 0.5), (2, 0.5)):
        logits = np.array([[np.nan, 1.0, 0.0], [0.0, 1.0, 0.5]])
        options = (library.asarray(np.full(2, top_k)), library.asarray(np.full(2, top_p)))
        filtered = np.asarray(top_filter(library.asarray(logits), *options))
        assert np.isnan(filtered[0, 0])
        assert not np.isnan(filtered[1]).any()


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_every_row_is_filtered_as_a_loop_does_it(data):
    value = st.sampled_from([-3.0, -1.0, 0.0, 0.5, 1.0, 2.0])
    rows = data.draw(st.lists(st.lists(value, min_size=6, max_size=6), min_size=1, max_size=4))
    options = [
        (
            data.draw(st.integers(0, 7)),
            data.draw(st.sampled_from([0.11, 0.37, 0.52, 0.93, 1.0])),
            data.draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])),
        )
        for _ in rows
    ]
    expected = [loop(row, k, float(np.float32(p)), t) for row, (k, p, t) in zip(rows, options, strict=True)]
    assert kept(rows, *(list(column) for column in zip(*options, strict=True))) == expected


@pytest.mark.parametrize(
    ("logits", "top_k", "message"),
    [
        (np.zeros(3), np.zeros(3, np.int64), r"logits have shape \(3,\): allowed is \[N, V\]"),
        (np.zeros((2, 3)), np.zeros(3, np.int64), r"top_k has shape \(3,\): allowed is \[2\]"),
    ],
)
def test_shapes_that_contradict_each_other_are_refused(logits, top_k, message):
    with pytest.raises(InputError, match=message):
        top_filter(logits, top_k, np.ones(2))
