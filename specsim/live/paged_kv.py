"""The paged KV cache: blocks of key and value pools, and which request holds which.

A request's tokens beyond its committed length may be stale: they are written before they are read, since the pass that
feeds a position writes it first. So taking back rejected drafts is free.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from specsim.errors import InputError
from specsim.serving.kv import BlockPool

PADDING_BLOCK = 0
"""Never handed out: rows that pad a token bucket write here."""

MOST_BLOCKS = 2**24
"""More are a slip: their numbers alone would fill gigabytes."""


class AddressedPool(BlockPool):
    """Blocks by number: what the scheduler reserves for a slot is also handed out.

    num_blocks  blocks in all, the padding block not counted
    block_size  tokens a block
    num_slots   slots
    max_tokens  most tokens of one slot
    device      where the table is read by passes

    Raises      InputError for more blocks than can be numbered
    """

    def __init__(self, num_blocks: int, block_size: int, num_slots: int, max_tokens: int, device: Any) -> None:
        if num_blocks > MOST_BLOCKS:
            raise InputError(f"num_kv_blocks is {num_blocks}; it must be at most {MOST_BLOCKS:,}")
        super().__init__(num_blocks, block_size, num_slots)
        self.table = np.zeros((num_slots, self.blocks_for(max_tokens)), np.int64)
        self._device_table = torch.zeros(self.table.shape, dtype=torch.int64, device=device)
        self._free = list(range(num_blocks, PADDING_BLOCK, -1))
        self._given = np.zeros(num_slots, np.int64)  # blocks that each slot has, reserved or ahead of it
        self._stale = False

    def reserve_all(self, slots: np.ndarray, num_tokens: np.ndarray) -> bool:
        """See `BlockPool.reserve_all`."""
        before = self.used
        if not super().reserve_all(slots, num_tokens):
            return False
        if self.used != before:
            for slot in slots[self.held[slots] > self._given[slots]].tolist():
                self._hand_out(slot)
        return True

    def hand_out_ahead(self, slots: np.ndarray, num_tokens: np.ndarray) -> bool:
        """Let slots have blocks before they are reserved; whoever reserves takes them back where blocks are short.

        slots       [B] int64
        num_tokens  [B] int64, tokens each must have room for
        returns     whether all have them; else nothing changed
        """
        wanted = (num_tokens + (self.block_size - 1)) // self.block_size
        more = np.maximum(wanted - self._given[slots], 0)
        total = int(np.add.reduce(more))
        if total > len(self._free) or int(wanted.max(initial=0)) > self.table.shape[1]:
            return False
        for row in more.nonzero()[0].tolist() if total else ():
            self._give(int(slots[row]), int(wanted[row]))
        return True

    def reserve(self, slot: int, num_tokens: int) -> bool:
        """See `BlockPool.reserve`."""
        if not super().reserve(slot, num_tokens):
            return False
        self._hand_out(slot)
        return True

    def release(self, slot: int) -> None:
        """See `BlockPool.release`."""
        self._free.extend(self.table[slot, : self._given[slot]].tolist()[::-1])
        self.table[slot] = PADDING_BLOCK
        self._given[slot] = 0
        self._stale = True
        super().release(slot)

    def blocks_of(self, slot: int) -> list[int]:
        """Numbers of the blocks a slot holds."""
        return [int(block) for block in self.table[slot, : self._given[slot]]]

    def point(self, table: np.ndarray) -> None:
        """Let slots read blocks whoever holds them: for measuring passes, while no request runs.

        table   [slots, blocks] int64
        """
        self.table[:] = table
        self._stale = True

    def device_table(self) -> torch.Tensor:
        """[slots, blocks] int64, brought up to date; always the same tensor, so that captured graphs may read it."""
        if self._stale:
            there = torch.from_numpy(self.table)
            if self._device_table.device.type == "cuda":
                there = there.pin_memory()  # from other memory the host would wait for what the device is at
            self._device_table.copy_(there, non_blocking=True)
            self._stale = False
        return self._device_table

    def _hand_out(self, slot: int) -> None:
        held = int(self.held[slot])
        if held - int(self._given[slot]) > len(self._free):
            self._take_back()
        self._give(slot, held)

    def _give(self, slot: int, blocks: int) -> None:
        given = int(self._given[slot])
        if given < blocks:
            for place in range(given, blocks):
                self.table[slot, place] = self._free.pop()
            self._given[slot] = blocks
            self._stale = True

    def _take_back(self) -> None:
        """Free every block that a slot has and does not hold."""
        for slot in np.flatnonzero(self._given > self.held).tolist():
            held, given = int(self.held[slot]), int(self._given[slot])
            self._free.extend(self.table[slot, held:given].tolist()[::-1])
            self.table[slot, held:given] = PADDING_BLOCK
            self._given[slot] = held
            self._stale = True


class PagedKV:
    """Key and value pools of every layer of one model.

    config      the model's text configuration
    num_blocks  blocks in all, the padding block not counted
    block_size  tokens a block

    Raises      InputError when the device has no room for them
    """

    def __init__(self, config: Any, num_blocks: int, block_size: int, dtype: torch.dtype, device: Any) -> None:
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        shape = (num_blocks + 1, block_size, heads, head_dim)
        self.block_size = block_size
        # Zeros, not empty: masked positions still meet the values in a product, and there NaN would stay NaN.
        layers = range(config.num_hidden_layers)
        try:
            self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in layers]
            self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in layers]
        except (RuntimeError, TypeError) as error:  # out of memory, or a size that overflows
            size = (num_blocks + 1) * self.bytes_per_block(config, block_size, dtype) / 2**30
            raise InputError(
                f"{num_blocks} KV blocks of {block_size} tokens take {size:,.1f} GiB, which {device} does not have; "
                "lower num_kv_blocks, block_size or max_num_seqs"
            ) from error

    def scrub(self, blocks: list[int]) -> None:
        """Forget what blocks hold: a request that failed may have left NaN there."""
        for pool in (*self.keys, *self.values):
            pool[blocks] = 0

    @staticmethod
    def bytes_per_block(config: Any, block_size: int, dtype: torch.dtype) -> int:
        """Device memory of one block in all layers."""
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        return 2 * config.num_hidden_layers * block_size * heads * head_dim * dtype.itemsize
