"""Passes over packed tokens of several requests: eager, or as captured CUDA graphs of a few token buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import torch

from specsim.live.paged_kv import AddressedPool


@dataclass(frozen=True, slots=True)
class Rows:
    """What a pass feeds: a run of tokens of each of R requests, read from the history.

    slots   [R] int64, row of the history
    starts  [R] int64, first position fed
    counts  [R] int64, tokens fed
    total   their sum, on the host
    extra   [R, ...] what else the pass reads of each request (None: nothing)
    fed     [3, R] int64, slots, starts and counts in one tensor (None: there is none)
    """

    slots: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor
    total: int
    extra: torch.Tensor | None = None
    fed: torch.Tensor | None = None

    @classmethod
    def of(cls, fed: torch.Tensor, total: int) -> Rows:
        """Rows of [3, R] slots, starts and counts, which a captured pass copies at once."""
        return cls(fed[0], fed[1], fed[2], total, None, fed)


Output = TypeVar("Output")

Body: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int, torch.Tensor | None], Output]
"""A pass: (slots [R], starts [R], counts [R], rows N, extra [R, ...]); nothing in it is read by the host, and shapes
depend on those of its arguments alone."""


@dataclass
class _Graph(Generic[Output]):
    """A captured pass: inputs to fill in, outputs to read.

    fed     [3, R] int64, see `Rows`
    count   requests of the latest pass: those behind them feed nothing
    """

    graph: torch.cuda.CUDAGraph
    fed: torch.Tensor
    extra: torch.Tensor | None
    output: Output
    count: int = 0


class PackedPasses(Generic[Output]):
    """Runs one kind of pass, each shape of it captured when it is first needed.

    body        the pass
    pools       whose tables it reads
    num_slots   most requests of a pass
    device      where it runs
    buckets     token counts that are captured as CUDA graphs, rising (empty: every pass is eager)
    """

    def __init__(
        self,
        body: Body[Output],
        pools: tuple[AddressedPool, ...],
        num_slots: int,
        device: torch.device,
        buckets: tuple[int, ...],
    ) -> None:
        self._body, self._pools, self._num_slots, self._device = body, pools, num_slots, device
        self.buckets = buckets
        self._graphs: dict[tuple[Any, ...], _Graph[Output]] = {}
        self._memory: Any = None

    def tokens_paid(self, total: int) -> int:
        """Tokens a pass of `total` runs over: the next bucket, or as many where it runs eagerly."""
        index = bisect_left(self.buckets, total)
        return self.buckets[index] if index < len(self.buckets) else total

    def captures(self, total: int) -> bool:
        """Whether a pass of so many tokens is a captured one."""
        return bool(self.buckets) and total <= self.buckets[-1]

    def same_graph(self, one: int, other: int) -> bool:
        """Whether passes of one token each for so many requests replay the same graph."""
        size = self.tokens_paid(one)
        return (
            self.captures(max(one, other))
            and size == self.tokens_paid(other)
            and self._requests_paid(size, one) == self._requests_paid(size, other)
        )

    def run(self, rows: Rows) -> Output:
        """Run a pass. A captured one writes its output to the same place again at the next pass of its shape, and has
        rows for more requests and tokens than were fed."""
        if self.captures(rows.total):
            return self._replay(self.tokens_paid(rows.total), rows)
        return self._body(rows.slots, rows.starts, rows.counts, rows.total, rows.extra)

    def capture(self, num_requests: int, most_tokens: int | None = None) -> None:
        """Capture ahead what would be captured when it is first needed: the buckets of one number of requests.

        most_tokens     tokens of the largest pass (None: those of the largest bucket)
        """
        for size in reversed(self.buckets):  # largest first, so that the smaller ones find its memory to share
            if most_tokens is not None and size > self.tokens_paid(most_tokens):
                continue
            key = (size, self._requests_paid(size, min(num_requests, size)), None)
            if key not in self._graphs:
                self._capture(size, key[1], None, key)

    def _requests_paid(self, size: int, count: int) -> int:
        """Requests that a captured pass makes room for.

        Attention cuts its tiles by tokens a request: few requests of many tokens are captured apart from many of few.
        """
        return min(size, self._num_slots, 1 << (count - 1).bit_length())

    def _replay(self, size: int, rows: Rows) -> Output:
        count = len(rows.slots)
        room = self._requests_paid(size, count)
        key = (size, room, None if rows.extra is None else (*rows.extra.shape[1:], rows.extra.dtype))
        if key not in self._graphs:
            self._capture(size, room, rows.extra, key)
        for pool in self._pools:
            pool.device_table()  # brings the table up to date, which the graph reads
        held = self._graphs[key]
        fed = torch.stack([rows.slots, rows.starts, rows.counts]) if rows.fed is None else rows.fed
        held.fed[:, :count].copy_(fed, non_blocking=True)
        if count < held.count:
            held.fed[2, count : held.count].zero_()
        held.count = count
        if held.extra is not None and rows.extra is not None:
            held.extra[:count].copy_(rows.extra, non_blocking=True)
        held.graph.replay()
        return held.output

    def _capture(self, size: int, num_requests: int, extra: torch.Tensor | None, key: tuple[Any, ...]) -> None:
        wide = num_requests + num_requests % 2  # kernels like aligned addresses
        fed = torch.zeros((3, wide), dtype=torch.int64, device=self._device)[:, :num_requests]
        slots, starts, counts = fed
        if extra is not None:
            extra = extra.new_zeros((num_requests, *extra.shape[1:]))
        for pool in self._pools:
            pool.device_table()  # a copy from the host is no part of the graph
        with torch.cuda.device(self._device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):  # kernels compile, workspaces are made
                    self._body(slots, starts, counts, size, extra)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._memory):
                output = self._body(slots, starts, counts, size, extra)
        self._memory = graph.pool() if self._memory is None else self._memory
        # The output is held, so that no other graph of the pool is given its memory.
        self._graphs[key] = _Graph(graph, fed, extra, output)
