"""Laws small enough to enumerate."""

import numpy as np
import pytest

from specsim.study.exactness.laws import Shape, random_laws

SHAPES = [Shape(2, 3, 2), Shape(3, 2, 1), Shape(3, 1, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("structure", ["parallel", "autoregressive"])
def test_every_law_sums_to_one_and_so_do_drafts_and_continuations(shape, structure):
    for seed in range(10):
        for own in random_laws(np.random.default_rng(seed), shape, structure):
            for law in (*own.target, *own.draft, *own.continuations):
                assert law.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
            assert own.chance.sum() == pytest.approx(1.0, abs=1e-12)


def test_a_parallel_drafter_has_one_law_a_position_and_an_autoregressive_one_does_not():
    shape = Shape(2, 2, 1)
    (parallel,) = random_laws(np.random.default_rng(0), shape, "parallel")
    (autoregressive,) = random_laws(np.random.default_rng(0), shape, "autoregressive")
    assert (parallel.draft[1][0] == parallel.draft[1][1]).all()
    assert (autoregressive.draft[1][0] != autoregressive.draft[1][1]).all()


def test_some_laws_have_impossible_tokens():
    some = [random_laws(np.random.default_rng(seed), Shape(3, 2, 1), "parallel")[0] for seed in range(20)]
    assert 0 < sum(any((law == 0).any() for law in own.target) for own in some) < 20


def test_scores_of_a_draft_by_hand(laws):
    own = laws(draft=(0.6, 0.4), depth=2, second=[[0.9, 0.1], [0.25, 0.75]])
    assert own.drafts.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert own.scores["drawn_prob"] == pytest.approx(np.array([[0.6, 0.9], [0.6, 0.1], [0.4, 0.25], [0.4, 0.75]]))
    assert own.scores["max_prob"] == pytest.approx(np.array([[0.6, 0.9], [0.6, 0.9], [0.6, 0.75], [0.6, 0.75]]))
    assert own.scores["shifted_prob"] == pytest.approx(np.array([[1, 0.6], [1, 0.6], [1, 0.4], [1, 0.4]]))
    assert own.scores["margin"][:, 1] == pytest.approx(np.log([9, 9, 3, 3]))


def test_a_continuation_is_the_product_of_the_targets_laws(laws):
    own = laws(target=(0.3, 0.7), depth=1)
    assert own.continuations[0][0] == pytest.approx([0.09, 0.21, 0.21, 0.49])
    assert own.continuations[1][0] == pytest.approx([0.3, 0.7])
