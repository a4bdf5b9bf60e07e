"""Training sees what drafting sees: many anchors at once give the logits of each anchor drafted by itself."""

import numpy as np
import pytest
import torch

from specsim.live.drafters.decoder_layer import attend_dense
from specsim.live.training.anchored import attend_anchored, draft_hidden
from specsim.live.training.batches import anchor_batch
from specsim.live.training.data import join_rows
from specsim.live.training.features import cache_features
from specsim.live.training.recipe import build_net


@pytest.mark.parametrize("own", [0, 3])
def test_anchored_attention_is_dense_attention_to_what_an_anchor_sees(own):
    torch.manual_seed(0)
    query = torch.randn(2, 4, 3, 6, 8, dtype=torch.float64)
    key, value = torch.randn(2, 2, 7, 2, 8, dtype=torch.float64)
    own_key, own_value = torch.randn(2, 2, 4, own, 2, 8, dtype=torch.float64) if own else (None, None)
    counts = torch.tensor([[1, 3, 7, 2], [5, 1, 1, 6]])
    seen = torch.arange(7) < counts[..., None]
    out = attend_anchored(query, key, value, seen, own_key, own_value)
    for row in range(2):
        for anchor in range(4):
            count = counts[row, anchor]
            keys, values = key[row, :count], value[row, :count]
            if own:
                keys = torch.cat((keys, own_key[row, anchor]))
                values = torch.cat((values, own_value[row, anchor]))
            torch.testing.assert_close(out[row, anchor], attend_dense(query[row, anchor], keys, values))


def test_every_anchor_gets_the_logits_of_drafting_from_it_alone(recipe, target, data):
    """The tokens behind the anchor are the drafter's own drafts here, as when all of them are accepted."""
    torch.manual_seed(1)
    net = build_net(recipe, target.config).double().requires_grad_(False)
    layers = recipe.features
    context, depth = [7, 9, 12], recipe.depth
    rows = []
    for index, length in enumerate(context):
        known = data.row(index)[: length + 1]
        features = cache_features(target, data, layers, dtype=torch.float64, scaled=False).features
        features = features[data.starts[index] : data.starts[index] + length]
        if recipe.kind == "block":
            expected = net.draft_logits(
                features, net.block_tokens(torch.tensor(known[-1])), target.embedding, target.head
            )
        else:
            expected = net.draft_logits(features, torch.from_numpy(known), depth, target.embedding, target.head)
        rows.append((known, expected))
    drafted = join_rows(
        [known[:3] for known, _ in rows],
        [np.concatenate((known[3:], expected.argmax(-1).numpy())) for known, expected in rows],
        [0] * 3,
        [0] * 3,
    )
    cache = cache_features(target, drafted, layers, dtype=torch.float64, scaled=False)
    anchors = np.array([[4, length] for length in context])
    batch = anchor_batch(drafted, cache.best, np.arange(3), anchors, depth, on_path=False, device="cpu")
    hidden = draft_hidden(net, batch, cache.features[batch.place], target.embedding, depth)
    for row, (_, expected) in enumerate(rows):
        torch.testing.assert_close(net.logits(hidden[row, 1], target.head), expected, rtol=1e-8, atol=1e-8)


def test_drafts_do_not_see_the_row_behind_their_anchor(recipe, target, data):
    net = build_net(recipe, target.config).double().requires_grad_(False)
    cache = cache_features(target, data, recipe.features, dtype=torch.float64)
    batch = anchor_batch(data, cache.best, np.array([0]), np.array([[9]]), recipe.depth, on_path=False, device="cpu")
    features = cache.features[batch.place]
    before = draft_hidden(net, batch, features, target.embedding, recipe.depth)
    features[:, 9:] = float("nan")
    batch.tokens[:, 10:] = 0
    after = draft_hidden(net, batch, features.nan_to_num(1e3), target.embedding, recipe.depth)
    assert torch.equal(before, after)
    features = cache.features[batch.place].clone()
    features[:, 8] += 1
    assert (draft_hidden(net, batch, features, target.embedding, recipe.depth) != before).any(-1).all()
