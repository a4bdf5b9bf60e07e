"""The cache holds each row's hidden states as a pass over the row alone computes them."""

import numpy as np
import pytest
import torch

from specsim.errors import InputError
from specsim.live.training.features import cache_features, load_target

LAYERS = (1, 4)


def alone(target, row):
    with torch.no_grad():
        out = target.model(torch.from_numpy(row)[None], output_hidden_states=True)
    return torch.cat([out.hidden_states[layer + 1][0] for layer in LAYERS], -1), out.logits[0].argmax(-1)


@pytest.mark.parametrize("batch_tokens", [1, 100, 100000])
def test_cached_states_are_those_of_each_row_alone(target, data, batch_tokens):
    cache = cache_features(target, data, LAYERS, dtype=torch.float64, batch_tokens=batch_tokens, scaled=False)
    assert cache.scales == (1.0, 1.0)
    for index in range(len(data)):
        part = slice(data.starts[index], data.starts[index + 1])
        states, best = alone(target, data.row(index))
        torch.testing.assert_close(cache.features[part], states, rtol=1e-9, atol=1e-9)
        assert cache.best[part].tolist() == best.tolist()


def test_scaled_states_have_one_size_and_scales_take_it_back(target, data):
    plain = cache_features(target, data, LAYERS, dtype=torch.float64, scaled=False).features
    cache = cache_features(target, data, LAYERS, dtype=torch.float64)
    width = plain.shape[1] // 2
    for place, scale in enumerate(cache.scales):
        part = slice(place * width, (place + 1) * width)
        torch.testing.assert_close(cache.features[:, part] * scale, plain[:, part])
        assert 0.8 < float(cache.features[:, part].square().mean(-1).sqrt().median()) < 1.2
    assert cache.scales[0] != cache.scales[1]


def test_when_memory_is_short_whole_random_rows_are_kept(target, data):
    token_bytes = 2 * 48 * 8
    limit = len(data.tokens) * token_bytes // 2
    caches = [cache_features(target, data, LAYERS, dtype=torch.float64, limit_bytes=limit, seed=s) for s in (0, 0, 1)]
    for cache in caches:
        assert cache.features.nbytes <= limit
        assert 3 <= len(cache.data) < len(data)
        rows = {tuple(data.row(index)) for index in range(len(data))}
        assert all(tuple(cache.data.row(index)) in rows for index in range(len(cache.data)))
    assert np.array_equal(caches[0].data.tokens, caches[1].data.tokens)
    assert not np.array_equal(caches[0].data.tokens, caches[2].data.tokens)
    with pytest.raises(InputError, match="not one row"):
        cache_features(target, data, LAYERS, limit_bytes=10)


def test_columns_of_some_layers_are_found(target, data):
    cache = cache_features(target, data, (1, 2, 4), dtype=torch.float64)
    few = cache_features(target, data, (4, 1), dtype=torch.float64)
    assert torch.equal(cache.features[:, cache.columns((4, 1))], few.features)
    assert cache.columns((1, 2, 4)) is None
    assert cache.scales_of((4, 1)) == few.scales
    with pytest.raises(InputError, match="feature layer 3: cached are 1, 2, 4"):
        cache.columns((3,))


def test_the_last_layer_is_refused(target, data):
    with pytest.raises(InputError, match=r"each must be in 0 .. 4"):
        cache_features(target, data, (1, 5))


def test_a_target_is_loaded_from_a_folder_without_its_tokenizer(model_folder, tmp_path):
    folder = tmp_path / "bare"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((model_folder / name).read_bytes())
    target = load_target(str(folder), "float32", "cpu")
    assert (target.name, len(target.model_hash)) == ("bare", 64)
    assert target.embedding.shape == target.head.shape
    (folder / "config.json").write_text("{}")
    with pytest.raises(InputError, match="cannot load model"):
        load_target(str(folder), "float32", "cpu")
