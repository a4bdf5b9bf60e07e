"""Passes of one language model over its paged cache."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch

from specsim.kernels.pack import Packed
from specsim.live.attention import AttentionSwitch, PagedPass, attending, check_every_layer_attends
from specsim.live.ops import Ops
from specsim.live.packed_passes import PackedPasses, Rows
from specsim.live.paged_kv import AddressedPool, PagedKV

__all__ = ["ModelRunner", "PassOutput", "Rows"]


@dataclass(frozen=True, slots=True)
class PassOutput:
    """What a pass brought.

    logits       [K, V]: of the rows that were asked for, or of all N
    query_start  [R + 1] int64, row of each request's first token, cumulative
    """

    logits: torch.Tensor
    query_start: torch.Tensor


class ModelRunner:
    """Runs one model over its paged cache.

    model      a causal language model, whose attention is replaced during passes
    kv         its pools
    pool       whose table says which blocks a slot holds
    history    [S, T] int64, every slot's tokens, drafts behind the committed ones
    ops        operations of the device
    buckets    token counts that are captured as CUDA graphs, rising (empty: every pass is eager)
    """

    def __init__(
        self,
        model: Any,
        kv: PagedKV,
        pool: AddressedPool,
        history: torch.Tensor,
        ops: Ops,
        buckets: tuple[int, ...] = (),
    ) -> None:
        self._attention = AttentionSwitch(model)
        self.model, self.kv, self.pool, self.history, self.ops = model, kv, pool, history, ops
        self._passes = PackedPasses(self._captured, (pool,), len(history), history.device, buckets)
        self._features: dict[int, torch.Tensor] = {}  # [blocks * block_size, hidden] of each layer listened to
        self._heard: dict[int, torch.Tensor] | None = None  # outputs of the pass under way
        self._attended: set[int] = set()  # layers that attended in the pass before

    @property
    def buckets(self) -> tuple[int, ...]:
        """Token counts that are captured as CUDA graphs."""
        return self._passes.buckets

    def tokens_paid(self, total: int) -> int:
        """Tokens a pass of `total` runs over: the next bucket, or as many where it runs eagerly."""
        return self._passes.tokens_paid(total)

    def same_graph(self, one: int, other: int) -> bool:
        """Whether plain steps of so many requests replay the same graph: to a request it is then all one whether a
        pass holds others beside it."""
        return self._passes.same_graph(one, other)

    @torch.inference_mode()
    def run(self, rows: Rows, keep: torch.Tensor | None = None) -> PassOutput:
        """Feed tokens, storing their keys and values, and the outputs of layers that are listened to.

        keep     [K] int64, rows whose logits are wanted; a captured pass gives those of every row all the same
                 (None: all of them)
        """
        if not self._passes.captures(rows.total):
            return self._eager(rows.slots, rows.starts, rows.counts, rows.total, keep)
        out = self._passes.run(rows)
        query_start = out.query_start[: len(rows.slots) + 1]
        return PassOutput(out.logits if keep is None else out.logits[keep], query_start)

    @torch.inference_mode()
    def capture(self, num_requests: int | None = None, most_tokens: int | None = None) -> None:
        """Capture ahead what would be captured when it is first needed: the buckets of one number of requests.

        num_requests    requests in a pass (None: as many as there are slots)
        most_tokens     tokens of the largest pass (None: those of the largest bucket)
        """
        count = self.history.shape[0] if num_requests is None else num_requests
        self._passes.capture(count, most_tokens)

    @torch.inference_mode()
    def check(self) -> None:
        """Feed one token, while no slot holds a block, to see that the model runs over the paged cache.

        Raises  InputError naming the first layer that does not
        """
        first = torch.zeros(1, dtype=torch.int64, device=self.history.device)
        self._eager(first, first, first + 1, 1, None)
        check_every_layer_attends(self.model, self._attended)

    def listen(self, layers: tuple[int, ...]) -> list[torch.Tensor]:
        """Keep the outputs of some layers from now on; to be asked before any pass is captured.

        layers   0-based
        returns  [blocks * block_size, hidden] of each, a token's beside its keys and values, at its `kv_index`
        """
        hidden = self.model.config.get_text_config().hidden_size
        for layer in layers:
            if layer not in self._features:
                keys = self.kv.keys[0]
                shape = (keys.shape[0] * keys.shape[1], hidden)
                self._features[layer] = torch.zeros(shape, dtype=keys.dtype, device=keys.device)
                handle = self.model.get_decoder().layers[layer].register_forward_hook(self._hear(layer))
                weakref.finalize(self, handle.remove)
        return [self._features[layer] for layer in layers]

    def _hear(self, layer: int) -> Any:
        listener = weakref.ref(self)  # the model may outlive its engines, and must not keep their caches

        def hook(_: Any, __: Any, output: Any) -> None:
            runner = listener()
            if runner is not None and runner._heard is not None:  # an early exit runs these layers too
                runner._heard[layer] = (output[0] if isinstance(output, tuple) else output)[0]

        return hook

    def _captured(
        self, slots: torch.Tensor, starts: torch.Tensor, counts: torch.Tensor, size: int, extra: torch.Tensor | None
    ) -> PassOutput:
        return self._eager(slots, starts, counts, size, None)

    def _eager(
        self, slots: torch.Tensor, starts: torch.Tensor, counts: torch.Tensor, size: int, keep: torch.Tensor | None
    ) -> PassOutput:
        table = self.pool.device_table()
        packed: Packed = self.ops.pack(self.history, slots, starts, counts, table, self.kv.block_size, size)
        shared = self.ops.prepare(packed, table[slots], self.kv.block_size)
        paged = PagedPass(self.kv, packed, shared, self.ops)
        self._attended = paged.layers
        self._heard = {}
        with self._attention.paged(), attending(paged):
            logits = self.model(
                input_ids=packed.tokens[None],
                position_ids=packed.positions[None],
                attention_mask=None,
                use_cache=False,
                logits_to_keep=0 if keep is None else keep,
            ).logits[0]
        for layer, hidden in self._heard.items():
            self._features[layer].index_copy_(0, packed.kv_index, hidden)
        self._heard = None
        return PassOutput(logits, packed.query_start)
