"""Acceptance lengths are those of decoding draft by draft; figures are checked on cases small enough to count."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from specsim.live.training.evaluate import (
    RowResult,
    acceptance_length,
    calibration_error,
    judge_rows,
    judged_drafts,
    rank_quality,
    summarise,
    survival,
    table,
    walk,
)
from specsim.live.training.features import cache_features
from specsim.live.training.recipe import build_net
from specsim.live.training.trainer import Budget, train_drafter


def slow_blocks(net, target, row, prompt_len, features, depth):
    """Accepted drafts of each block that greedy decoding verifies, drafting anew from every anchor."""
    counts, anchor = [], prompt_len
    while anchor < len(row) - 1:
        known = torch.from_numpy(row[: anchor + 1])
        if hasattr(net, "block_tokens"):
            block = net.block_tokens(known[-1])[: depth + 1]
            logits = net.draft_logits(features[:anchor], block, target.embedding, target.head)
        else:
            logits = net.draft_logits(features[:anchor], known, depth, target.embedding, target.head)
        accepted = 0
        for draft, truth in zip(logits.argmax(-1).tolist(), row[anchor + 1 :].tolist(), strict=False):
            if draft != truth:
                break
            accepted += 1
        counts.append(accepted)
        anchor += accepted + 1
    return counts


@pytest.mark.parametrize("batch_rows", [1, 5])
def test_the_walk_is_that_of_decoding_draft_by_draft(recipe, target, data, make_data, batch_rows):
    cache = cache_features(target, data, recipe.features, dtype=torch.float64)
    net = train_drafter(recipe, target, cache, Budget(steps=40, log_seconds=1e9)).net
    held_out = make_data(rows=6, seed=5)
    tokens = held_out.tokens.copy()
    tokens[held_out.starts[1:] - 8] = 30  # a draft is judged by the output, even where the target would now differ
    held_out, depth = replace(held_out, tokens=tokens), 4
    rows = judge_rows(net, target, held_out, depth=depth, batch_rows=batch_rows)
    plain = cache_features(target, held_out, recipe.features, dtype=torch.float64, scaled=False)
    lengths = set()
    for index, row in enumerate(rows):
        features = plain.features[held_out.starts[index] : held_out.starts[index + 1]]
        slow = slow_blocks(net, target, held_out.row(index), int(held_out.prompt_len[index]), features, depth)
        assert [int(row.accepted[at]) for at in walk(row.accepted, depth)] == slow
        lengths |= set(slow)
    assert len(lengths) > 2, "drafts must be accepted now and then for this test to mean something"


@torch.no_grad()
def test_confidence_is_the_probability_of_the_draft(recipes, target, data):
    net = build_net(recipes["block"], target.config).double()
    row = judge_rows(net, target, data, depth=4)[3]
    plain = cache_features(target, data, recipes["block"].features, dtype=torch.float64, scaled=False)
    anchor = int(data.prompt_len[3]) + 2
    features = plain.features[data.starts[3] : data.starts[3] + anchor]
    block = net.block_tokens(torch.tensor(data.row(3)[anchor]))
    expected = net.draft_logits(features, block, target.embedding, target.head).softmax(-1).max(-1).values
    np.testing.assert_allclose(row.confidence[2], expected.numpy(), rtol=1e-5)


def result(*accepted, depth=3, loops=False, domain=0, confidence=0.5):
    right = np.arange(depth) < np.array(accepted)[:, None]
    return RowResult(domain, loops, right, np.full(right.shape, confidence, np.float32))


def test_a_block_emits_its_accepted_drafts_and_one_token():
    row = result(2, 0, 0, 1, 0, 0)
    assert walk(row.accepted, 3) == [0, 3, 5]
    assert walk(row.accepted, 1) == [0, 2, 3, 5]
    assert acceptance_length([row], 3) == 2.0
    assert acceptance_length([row, result(3, 2, 1)], 3) == 9 / 4
    assert np.isnan(acceptance_length([], 3))


def test_survival_leaves_out_blocks_that_end_with_the_output():
    assert survival([result(2, 0, 0, 1, 0, 0)]) == [2 / 3, 1 / 2, 0.0]
    assert survival([result(1, 0)])[0] == 1.0
    assert np.isnan(survival([result(1, 0)])[2])


def test_confidence_is_judged_where_the_drafts_before_were_right():
    row = result(2, 0, 1, 3, 0, 0)
    sure, right = judged_drafts([row], 2)
    assert len(sure) == 3
    assert right.tolist() == [True, False, True]
    assert len(judged_drafts([row], 1)[1]) == 6


def test_calibration_error_counts_the_gap_of_each_bin():
    confidence = np.array([0.1, 0.1, 0.9, 0.9], np.float32)
    right = np.array([False, False, True, False])
    assert calibration_error(confidence, right) == pytest.approx(0.1 * 0.5 + 0.4 * 0.5)
    assert calibration_error(np.ones(3, np.float32), np.ones(3, bool)) == 0.0


def test_rank_quality_is_the_chance_of_ranking_right_above_wrong():
    confidence = np.array([0.1, 0.4, 0.4, 0.8])
    assert rank_quality(confidence, np.array([False, False, True, True])) == pytest.approx(3.5 / 4)
    assert np.isnan(rank_quality(confidence, np.ones(4, bool)))


def test_the_summary_has_each_domain_all_and_outputs_without_loops():
    rows = [result(2, 0, 0, domain=1), result(0, 0, 0, loops=True, domain=1), result(1, 0, domain=0)]
    found = summarise(rows, ("chat", "code", "math"))
    assert list(found) == ["chat", "code", "all"]
    assert found["code"]["looping"] == 0.5
    assert found["code"]["acceptance_length"]["7"] == 1.5
    assert found["code"]["acceptance_length_loop_free"]["7"] == 3.0
    assert found["chat"]["survival"] == [1.0, 0.0, None]
    text = table(found)
    assert len({line.count("|") for line in text.splitlines()}) == 1
    assert "| code | 2 | 0.50 | 1.50 | 1.50 | 3.00 | 3.00 |" in text
