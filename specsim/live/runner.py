"""Passes of one model over packed tokens: eager, or as captured CUDA graphs of a few token buckets."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import torch

from specsim.kernels.pack import Packed
from specsim.live.attention import PagedPass, attending, check_every_layer_attends, use_paged_attention
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

    graph: torch.cuda.CUDAGraph
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
        self._graphs: dict[tuple[int, int], _Graph] = {}
        self._memory: Any = None
        self._heard: list[torch.Tensor] = []
        self._attended: set[int] = set()  # layers that attended in the pass before
        for layer in features:
            model.get_decoder().layers[layer].register_forward_hook(self._hear)

    def tokens_paid(self, total: int) -> int:
        """Tokens a pass of `total` runs over: the next bucket, or as many where it runs eagerly."""
        index = bisect_left(self.buckets, total)
        return self.buckets[index] if index < len(self.buckets) else total

    @torch.inference_mode()
    def run(self, rows: Rows, keep: torch.Tensor | None = None) -> PassOutput:
        """Feed tokens, storing their keys and values.

        keep     [K] int64, rows whose logits are wanted; a captured pass gives those of every row all the same
                 (None: all of them)
        """
        if self.buckets and rows.total <= self.buckets[-1]:
            out = self._replay(self.tokens_paid(rows.total), rows)
            return out if keep is None else PassOutput(out.logits[keep], out.query_start, out.features)
        return self._eager(rows.slots, rows.starts, rows.counts, rows.total, keep)

    @torch.inference_mode()
    def capture(self, num_requests: int | None = None) -> None:
        """Capture ahead what would be captured when it is first needed: every bucket, for one number of requests.

        num_requests    requests in a pass (None: as many as there are slots)
        """
        wanted = self.history.shape[0] if num_requests is None else num_requests
        for size in reversed(self.buckets):  # largest first, so that the smaller ones find its memory to share
            key = (size, self._requests_paid(size, min(wanted, size)))
            if key not in self._graphs:
                self._capture(*key)

    @torch.inference_mode()
    def check(self) -> None:
        """Feed one token, while no slot holds a block, to see that the model runs over the paged cache.

        Raises  InputError naming the first layer that does not
        """
        first = torch.zeros(1, dtype=torch.int64, device=self.history.device)
        self._eager(first, first, first + 1, 1, None)
        check_every_layer_attends(self.model, self._attended)

    def _requests_paid(self, size: int, count: int) -> int:
        """Requests that a captured pass makes room for.

        Attention cuts its tiles by tokens a request: few requests of many tokens are captured apart from many of few.
        """
        return min(size, self.history.shape[0], 1 << (count - 1).bit_length())

    def _eager(
        self, slots: torch.Tensor, starts: torch.Tensor, counts: torch.Tensor, size: int, keep: torch.Tensor | None
    ) -> PassOutput:
        table = self.pool.device_table()
        packed: Packed = self.ops.pack(self.history, slots, starts, counts, table, self.kv.block_size, size)
        self._heard.clear()
        shared = self.ops.prepare(packed, table[slots], self.kv.block_size)
        paged = PagedPass(self.kv, packed, shared, self.ops)
        self._attended = paged.layers
        with attending(paged):
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
        count = len(rows.slots)
        key = (size, self._requests_paid(size, count))
        if key not in self._graphs:
            self._capture(*key)
        self.pool.device_table()  # brings the table up to date, which the graph reads
        held = self._graphs[key]
        held.slots[:count].copy_(rows.slots, non_blocking=True)
        held.starts[:count].copy_(rows.starts, non_blocking=True)
        held.counts.zero_()  # requests of an earlier pass behind these feed nothing
        held.counts[:count].copy_(rows.counts, non_blocking=True)
        held.graph.replay()
        return PassOutput(held.logits, held.query_start[: count + 1], held.features)

    def _capture(self, size: int, num_requests: int) -> None:
        device = self.history.device
        slots, starts, counts = (torch.zeros(num_requests, dtype=torch.int64, device=device) for _ in range(3))
        with torch.cuda.device(device):
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
        # The outputs are held, so that no other graph of the pool is given their memory.
        key = (size, num_requests)
        self._graphs[key] = _Graph(graph, slots, starts, counts, out.logits, out.query_start, out.features)
