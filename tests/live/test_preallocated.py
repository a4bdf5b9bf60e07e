"""The cache written in place answers as the growing one does, and a step can be taken back."""

import pytest
import torch
from transformers import DynamicCache

from specsim.live.models import cache_keyword
from specsim.live.preallocated import prefilled_cache

BATCH, CONTEXT, ROOM = 3, 11, 6


@pytest.fixture(scope="module")
def model(make_model):
    return make_model()


def growing_twin(cache, model):
    twin = DynamicCache(config=model.config)
    for index, layer in enumerate(cache.layers):
        twin.update(layer.keys.clone(), layer.values.clone(), index)
    return twin


def feed(model, cache, tokens):
    with torch.inference_mode():
        return model(tokens, use_cache=True, **{cache_keyword(model): cache}).logits


def test_passes_over_it_equal_passes_over_a_growing_cache(model):
    cache = prefilled_cache(model, BATCH, CONTEXT, ROOM)
    twin = growing_twin(cache, model)
    for width in (1, 4, 1):
        tokens = torch.full((BATCH, width), 5 + width)
        torch.testing.assert_close(feed(model, cache, tokens), feed(model, twin, tokens), rtol=0, atol=1e-12)
    assert cache.get_seq_length() == twin.get_seq_length() == CONTEXT + ROOM


def test_room_that_was_never_written_is_never_read(model):
    cache = prefilled_cache(model, BATCH, CONTEXT, ROOM)
    assert torch.isnan(cache.layers[0]._buffers[0][:, :, CONTEXT:]).all()
    assert torch.isfinite(feed(model, cache, torch.full((BATCH, 2), 7))).all()


def test_a_step_taken_back_leaves_no_trace(model):
    """CASES 18: what an earlier, longer step wrote is not read by a later, shorter one."""
    cache = prefilled_cache(model, BATCH, CONTEXT, ROOM)
    tokens = torch.full((BATCH, 2), 9)
    first = feed(model, cache, tokens)
    cache.crop(-2)
    feed(model, cache, torch.full((BATCH, ROOM), 33))
    cache.crop(-ROOM)
    assert cache.get_seq_length() == CONTEXT
    torch.testing.assert_close(feed(model, cache, tokens), first, rtol=0, atol=0)


def test_the_context_is_the_same_noise_every_time(model):
    one, other = (prefilled_cache(model, BATCH, CONTEXT, ROOM) for _ in range(2))
    torch.testing.assert_close(one.layers[1].keys, other.layers[1].keys, rtol=0, atol=0)


def test_more_than_its_room_is_an_error(model):
    cache = prefilled_cache(model, BATCH, CONTEXT, ROOM)
    with pytest.raises(ValueError, match="18 positions in a cache with room for 17"):
        feed(model, cache, torch.full((BATCH, ROOM + 1), 5))
