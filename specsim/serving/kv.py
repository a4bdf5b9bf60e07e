"""KV-cache blocks of one replica: counted, not addressed."""

from __future__ import annotations

import numpy as np


class BlockPool:
    """Blocks held by each slot, and how many are free.

    num_blocks  blocks in all (None: never the limit; what is held is still counted)
    block_size  tokens a block
    num_slots   slots
    """

    UNLIMITED = 1 << 60

    def __init__(self, num_blocks: int | None, block_size: int, num_slots: int) -> None:
        self.num_blocks = self.UNLIMITED if num_blocks is None else num_blocks
        self.block_size = block_size
        self.held = np.zeros(num_slots, np.int64)
        self.used = 0

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` tokens take."""
        return -(-num_tokens // self.block_size)

    def reserve_all(self, slots: np.ndarray, num_tokens: np.ndarray) -> bool:
        """Let every slot hold blocks for its tokens, or change nothing.

        slots       [B] int64
        num_tokens  [B] int64, tokens each must have room for
        returns     whether the free blocks sufficed
        """
        held = self.held[slots]
        needed = np.maximum((num_tokens + (self.block_size - 1)) // self.block_size, held)
        extra = int(np.add.reduce(needed - held))
        if extra:
            if self.used + extra > self.num_blocks:
                return False
            self.held[slots] = needed
            self.used += extra
        return True

    def reserve(self, slot: int, num_tokens: int) -> bool:
        """Let one slot hold blocks for its tokens, or change nothing."""
        extra = max(0, self.blocks_for(num_tokens) - int(self.held[slot]))
        if self.used + extra > self.num_blocks:
            return False
        self.held[slot] += extra
        self.used += extra
        return True

    def release(self, slot: int) -> None:
        """Free all blocks of a slot."""
        self.used -= int(self.held[slot])
        self.held[slot] = 0
