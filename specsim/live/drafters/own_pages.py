"""Keys and values of a trained drafter: room for every slot's longest sequence, whatever the target's blocks do.

A drafter of one or two layers keeps a hundredth of what the target keeps a token, so it needs no blocks on demand.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch

from specsim.kernels.pack import Packed
from specsim.live.drafters.decoder_layer import LayerShape
from specsim.live.engine import LiveSetup
from specsim.live.ops import Ops
from specsim.live.paged_kv import AddressedPool, PagedKV


class OwnPages:
    """The cache of one drafter.

    shape       of its layers
    num_layers  how many
    setup       the device side of the engine it drafts in
    beyond      positions behind a sequence's drafts that it writes to as well
    """

    def __init__(self, shape: LayerShape, num_layers: int, setup: LiveSetup, beyond: int = 0) -> None:
        num_slots, most = setup.state.history.shape
        each = -(-(most + beyond) // setup.block_size)
        self.pool = AddressedPool(num_slots * each, setup.block_size, num_slots, most + beyond, setup.device)
        for slot in range(num_slots):
            assert self.pool.reserve(slot, most + beyond)
        config = SimpleNamespace(
            head_dim=shape.head_dim, num_key_value_heads=shape.num_kv_heads, num_hidden_layers=num_layers
        )
        self.kv = PagedKV(config, self.pool.num_blocks, setup.block_size, setup.dtype, setup.device)
        self._ops: Ops = setup.ops
        self.block_size = setup.block_size

    def pack(
        self, history: torch.Tensor, slots: torch.Tensor, starts: torch.Tensor, counts: torch.Tensor, size: int
    ) -> Packed:
        """Tokens from the history with their places in this cache; see `kernels.pack.pack`."""
        return self._ops.pack(history, slots, starts, counts, self.pool.device_table(), self.block_size, size)

    def attend_to(self, packed: Packed, slots: torch.Tensor, whole: bool = False) -> _PagesAttend:
        """What a net's layers attend with in one pass.

        whole   whether a token sees all its request's positions
        """
        table = self.pool.device_table()[slots]
        return _PagesAttend(self.kv, self._ops, packed, self._ops.prepare(packed, table, self.block_size, whole))


class _PagesAttend:
    """Stores a layer's keys and values, then attends to its request's; see `decoder_layer.Attend`."""

    def __init__(self, kv: PagedKV, ops: Ops, packed: Packed, shared: object) -> None:
        self._kv, self._ops, self._packed, self._shared = kv, ops, packed, shared

    def __call__(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        self.store(layer, key, value)
        scale = query.shape[-1] ** -0.5
        return self._ops.attend(query, self._kv.keys[layer], self._kv.values[layer], self._shared, scale)

    def store(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Keys and values of the pass's tokens, [N, Hkv, d] each."""
        self._ops.store_kv(key, value, self._kv.keys[layer], self._kv.values[layer], self._packed.kv_index)
