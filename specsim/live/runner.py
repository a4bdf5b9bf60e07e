"""Passes of one model over packed tokens: eager, or as captured CUDA graphs of a few token buckets."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import torch

from specsim.kernels.pack import Packed
from specsim.live.attention import PagedPass, attending, use_paged_attention
from specsim.live.ops import Ops
from specsim.live.paged_kv import AddressedPool, PagedKV


@dataclass(frozen=True, slots=True)
class Rows:
    """What a pass feeds: a run of tokens of each of R requests, read from the history.

    slots   [R] int64, row of the history
    starts  [R] int64, first position fed
    counts  [R] int64, tokens fed
    total   their sum, on the host
    """

    slots: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor
    total: int


@dataclass
class _Graph:
    """A captured pass: inputs to fill in, outputs to read."""

    graph: Any
    slots: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor
    logits: torch.Tensor
    query_start: torch.Tensor
    features: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class PassOutput:
    """What a pass brought.

    logits       [K, V]: of the rows that were asked for, or of all N
    query_start  [R + 1] int64, row of each request's first token, cumulative
    features     [N, F, hidden] outputs of the layers that were asked for (None: none was)
    """

    logits: torch.Tensor
    query_start: torch.Tensor
    features: torch.Tensor | None


class ModelRunner:
    """Runs one model over its paged cache.

    model      a causal language model, whose attention is replaced
    kv         its pools
    pool       whose table says which blocks a slot holds
    history    [S, T] int64, every slot's tokens, drafts behind the committed ones
    ops        operations of the device
    buckets    token counts that are captured as CUDA graphs, rising (empty: every pass is eager)
    features   layers whose outputs are handed over, 0-based
    """

    def __init__(
        self,
        model: Any,
        kv: PagedKV,
        pool: AddressedPool,
        history: torch.Tensor,
        ops: Ops,
        buckets: tuple[int, ...] = (),
        features: tuple[int, ...] = (),
    ) -> None:
        use_paged_attention(model)
        self.model, self.kv, self.pool, self.history, self.ops = model, kv, pool, history, ops
        self.buckets = buckets
        self.features = features
        self._graphs: dict[int, _Graph] = {}
        self._memory: Any = None
        self._heard: list[torch.Tensor] = []
        layers = model.get_decoder().layers
        for layer in features:
            layers[layer].register_forward_hook(self._hear)

    def tokens_paid(self, total: int) -> int:
        """Tokens a pass of `total` runs over: the next bucket, or as many where it runs eagerly."""
        index = bisect_left(self.buckets, total)
        return self.buckets[index] if index < len(self.buckets) else total

    def run(self, rows: Rows, keep: torch.Tensor | None = None) -> PassOutput:
        """Feed tokens, storing their keys and values.

        keep     [K] int64, rows whose logits are wanted; a captured pass gives those of every row all the same
                 (None: all of them)
        """
        paid = self.tokens_paid(rows.total)
        if paid in self._graphs or paid in self.buckets:
            out = self._replay(paid, rows)
            return out if keep is None else PassOutput(out.logits[keep], out.query_start, out.features)
        return self._eager(rows.slots, rows.starts, rows.counts, rows.total, keep)

    def capture(self) -> None:
        """Capture every bucket, largest first so that all share one memory pool."""
        for size in reversed(self.buckets):
            self._capture(size)

    def _eager(
        self, slots: torch.Tensor, starts: torch.Tensor, counts: torch.Tensor, size: int, keep: torch.Tensor | None
    ) -> PassOutput:
        table = self.pool.device_table()
        packed: Packed = self.ops.pack(self.history, slots, starts, counts, table, self.kv.block_size, size)
        self._heard.clear()
        shared = self.ops.prepare(packed, table[slots], self.kv.block_size)
        with attending(PagedPass(self.kv, packed, shared, self.ops)):
            logits = self.model(
                input_ids=packed.tokens[None],
                position_ids=packed.positions[None],
                attention_mask=None,
                use_cache=False,
                logits_to_keep=0 if keep is None else keep,
            ).logits[0]
        features = torch.stack(self._heard, dim=1) if self.features else None
        return PassOutput(logits, packed.query_start, features)

    def _hear(self, _: Any, __: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        self._heard.append(hidden[0])

    def _replay(self, size: int, rows: Rows) -> PassOutput:
        if size not in self._graphs:
            self._capture(size)
        self.pool.device_table()  # brings the table up to date, which the graph reads
        held = self._graphs[size]
        count = len(rows.slots)
        held.slots[:count].copy_(rows.slots, non_blocking=True)
        held.starts[:count].copy_(rows.starts, non_blocking=True)
        held.counts.zero_()
        held.counts[:count].copy_(rows.counts, non_blocking=True)
        held.graph.replay()
        return PassOutput(held.logits, held.query_start[: count + 1], held.features)

    def _capture(self, size: int) -> None:
        device = self.history.device
        most = min(size, self.history.shape[0])
        slots, starts, counts = (torch.zeros(most, dtype=torch.int64, device=device) for _ in range(3))
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):  # kernels compile, workspaces are made
                self._eager(slots, starts, counts, size, None)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            out = self._eager(slots, starts, counts, size, None)
        self._memory = graph.pool() if self._memory is None else self._memory
        self._graphs[size] = _Graph(graph, slots, starts, counts, out.logits, out.query_start, out.features)
