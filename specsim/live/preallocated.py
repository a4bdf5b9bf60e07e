"""A KV cache written in place: a step copies no history, as in a serving engine, and can be taken back for free."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class PreallocatedLayer(DynamicLayer):
    """Keys and values of one layer in a buffer of fixed size; what is held is a view of its beginning.

    keys      [B, H, room, head_dim], the first `length` positions filled
    values    the same
    length    positions held at first
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, length: int) -> None:
        super().__init__()
        self._buffers = (keys, values)
        self.lazy_initialization(keys, values)
        self._hold(length)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Write new positions after those held, and return everything held."""
        start = self.get_seq_length()
        stop = start + key_states.shape[-2]
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            if stop > buffer.shape[-2]:
                raise ValueError(f"{stop} positions in a cache with room for {buffer.shape[-2]}")
            buffer[:, :, start:stop] = states
        self._hold(stop)
        return self.keys, self.values

    def _hold(self, length: int) -> None:
        self.keys, self.values = (buffer[:, :, :length] for buffer in self._buffers)


def prefilled_cache(model: Any, batch: int, context: int, room: int, seed: int = 0) -> DynamicCache:
    """A cache as if every request of a batch had a context, filled with noise: what is in it costs the same.

    model       whose layers, heads and precision it fits
    batch       requests, B
    context     positions held, at least 1
    room        positions that can be added
    """
    config = model.config.get_text_config()
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = (batch, config.num_key_value_heads, context + room, head_dim)
    generator = torch.Generator(model.device).manual_seed(seed)

    def noise() -> torch.Tensor:
        # Beyond the context it is never read: a NaN that comes out tells that it was.
        states = torch.full(shape, float("nan"), dtype=model.dtype, device=model.device)
        states[:, :, :context].normal_(generator=generator)
        return states

    cache = DynamicCache(config=config)
    cache.layers = [PreallocatedLayer(noise(), noise(), context) for _ in range(config.num_hidden_layers)]
    return cache
