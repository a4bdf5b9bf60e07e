"""Batches hold what a drafter may know at an anchor, and what it should have said."""

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.live.training.batches import GROUP, AnchorSampler, anchor_batch
from specsim.live.training.data import join_rows

ROWS = join_rows([np.array([1, 2, 3]), np.array([4])], [np.array([10, 11, 12, 13]), np.array([20, 21])], [0, 1], [0, 0])
#        after token: 1  2  3   10  11  12  13   4   20  21
BEST = np.array([0, 0, 10, 11, 12, 99, 98, 20, 21, 97])


def learnt(batch, depth):
    """(row, anchor number, draft number) to label."""
    anchors = batch.anchors.shape[1]
    places = [(int(r) // depth // anchors, int(r) // depth % anchors, int(r) % depth) for r in batch.rows]
    assert [place[2] for place in places] == batch.depths.tolist()
    return dict(zip(places, batch.labels.tolist(), strict=True))


def make(on_path):
    return anchor_batch(ROWS, BEST, np.array([0, 1]), np.array([[3, 4], [1, 1]]), 3, on_path=on_path, device="cpu")


def test_each_draft_is_fed_the_token_before_it_and_learns_the_targets_choice():
    batch = make(on_path=False)
    assert batch.fed[0].tolist() == [[10, 11, 12], [11, 12, 13]]
    assert batch.fed[1, 0, 0] == 20
    assert batch.tokens[0, :7].tolist() == [1, 2, 3, 10, 11, 12, 13]
    assert batch.tokens[0, 7:].eq(13).all(), "padding repeats the last token"
    assert batch.place[1, :4].tolist() == [7, 8, 9, 9]
    assert batch.tokens.shape[1] == 32
    expected = {(0, 0, 0): 11, (0, 0, 1): 12, (0, 0, 2): 99, (0, 1, 0): 12, (0, 1, 1): 99, (1, 0, 0): 21, (1, 1, 0): 21}
    assert learnt(batch, 3) == expected


def test_on_the_path_a_block_is_learnt_up_to_where_the_row_left_the_greedy_path():
    best = BEST.copy()
    best[3] = 50  # after 10 the target would have said 50, the row says 11
    batch = anchor_batch(ROWS, best, np.array([0]), np.array([[3, 4]]), 3, on_path=True, device="cpu")
    assert learnt(batch, 3) == {(0, 0, 0): 50, (0, 1, 0): 12, (0, 1, 1): 99}


def test_a_step_draws_the_same_batch_whenever_it_is_drawn(data):
    best = np.zeros(len(data.tokens), np.int64)

    def sampler(seed):
        return AnchorSampler(data, best, 4, 6, 3, seed, on_path=False)

    first, second = sampler(1), sampler(1)
    later = [first.draw(step, "cpu") for step in range(5)][4]
    assert later.place.equal(second.draw(4, "cpu").place)
    assert later.anchors.equal(second.draw(4, "cpu").anchors)
    assert not later.anchors.equal(first.draw(4 + GROUP, "cpu").anchors)
    assert not later.place.equal(sampler(2).draw(4, "cpu").place)


def test_anchors_cover_the_output_and_leave_a_token_to_draft(data):
    best = np.zeros(len(data.tokens), np.int64)
    sampler = AnchorSampler(data, best, 4, 200, 3, 0, on_path=False)
    for step in range(4):
        batch = sampler.draw(step, "cpu")
        rows = np.searchsorted(data.starts, batch.place[:, 0].numpy(), side="right") - 1
        first, last = data.prompt_len[rows], data.lengths[rows] - 2
        assert (batch.anchors.numpy().min(1) == first).all()
        assert (batch.anchors.numpy().max(1) == last).all()


def test_a_group_of_steps_draws_each_row_once_at_most():
    rows = join_rows([np.array([1])] * 64, [np.array([2, 3])] * 64, [0] * 64, [0] * 64)
    sampler = AnchorSampler(rows, np.zeros(192, np.int64), 8, 2, 3, 0, on_path=False)
    seen = np.concatenate([sampler.draw(step, "cpu").place[:, 0].numpy() for step in range(GROUP)])
    assert sorted(seen) == list(range(0, 192, 3))


def test_each_step_draws_anchors_of_its_own():
    rows = join_rows([np.array([1])] * 8, [np.arange(2, 40)] * 8, [0] * 8, [0] * 8)
    sampler = AnchorSampler(rows, np.zeros(len(rows.tokens), np.int64), 4, 6, 3, 0, on_path=False)
    assert not sampler.draw(0, "cpu").anchors.equal(sampler.draw(1, "cpu").anchors)


def test_only_rows_that_were_asked_for_and_can_be_drafted_are_drawn(data):
    among = np.array([1, 7])
    sampler = AnchorSampler(data, np.zeros(len(data.tokens), np.int64), 4, 2, 3, 0, on_path=False, among=among)
    drawn = {start for step in range(GROUP) for start in sampler.draw(step, "cpu").place[:, 0].tolist()}
    assert drawn == set(data.starts[among].tolist())
    short = join_rows([np.array([1])], [np.array([2])], [0], [0])
    with pytest.raises(InputError, match="no row has an output of two tokens"):
        AnchorSampler(short, np.zeros(2, np.int64), 1, 1, 3, 0, on_path=False)
