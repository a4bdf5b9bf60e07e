"""How long ragged paged attention takes on a GPU, beside torch's own attention on keys gathered beforehand.

Every shape is a captured CUDA graph, replayed; its keys rotate through pools that together pass the second-level
cache. The bytes are those that must be read and written once: keys and values of all requests, queries, outputs. Their
share is of what a plain copy moves on the same device. Nothing is timed that differs from the definition.

    python benchmarks/attention.py

The last line printed is one JSON object. Without a CUDA device it says so, and ends with code 2.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specsim.kernels.attention import ragged_paged_attention as definition

BATCHES, QUERIES, CONTEXTS = (1, 8, 32, 128), (1, 4, 16), (512, 1024, 4096)
MODELS = ((32, 8, 128), (9, 3, 64))
"""Query heads, key heads and numbers of a head: Llama-3-8B, SmolLM2-135M."""

BLOCK_SIZE = 16
CACHE_BYTES = 256 * 2**20
"""Keys and values that are certainly no longer in a second-level cache of 60 MB when their turn comes again."""

MOST_CALLS = 64
LARGEST_ERROR = 1e-2


@dataclass(frozen=True)
class Shape:
    """One cell: requests, queries a request, keys a request, and the model's heads."""

    batch: int
    queries: int
    context: int
    heads: int
    kv_heads: int
    dim: int

    @property
    def bytes_moved(self) -> int:
        """Bytes that one call must read and write once, in bfloat16."""
        keys = 2 * self.batch * self.context * self.kv_heads * self.dim
        return 2 * (keys + 2 * self.batch * self.queries * self.heads * self.dim)

    @property
    def calls(self) -> int:
        """Calls of one graph, each with keys of its own, that together pass the cache."""
        keys = 4 * self.batch * self.context * self.kv_heads * self.dim
        return max(2, min(MOST_CALLS, math.ceil(CACHE_BYTES / keys)))


def arguments(shape: Shape, seed: int, torch: Any) -> tuple[Any, ...]:
    """Arguments of one call: blocks of each request scattered over a pool of the size of its keys."""
    generator = torch.Generator("cuda").manual_seed(seed)
    blocks = shape.context // BLOCK_SIZE

    def normal(*size: int) -> Any:
        return torch.randn(size, generator=generator, device="cuda", dtype=torch.bfloat16)

    pool = (shape.batch * blocks + 1, BLOCK_SIZE, shape.kv_heads, shape.dim)
    table = 1 + torch.randperm(shape.batch * blocks, generator=generator, device="cuda")
    start = torch.arange(shape.batch + 1, device="cuda") * shape.queries
    context = torch.full((shape.batch,), shape.context, device="cuda")
    query = normal(shape.batch * shape.queries, shape.heads, shape.dim)
    return (
        query,
        normal(*pool),
        normal(*pool),
        table.reshape(shape.batch, blocks).int(),
        start,
        context,
        shape.dim**-0.5,
    )


def gathered(shape: Shape, call: tuple[Any, ...], torch: Any) -> tuple[Any, ...]:
    """Query, keys, values and mask as torch's attention wants them: contiguous, [batch, heads, positions, d]."""
    query, key_pool, value_pool, table = call[:4]
    query = query.reshape(shape.batch, shape.queries, shape.heads, shape.dim).transpose(1, 2).contiguous()
    keys, values = (
        pool[table.long()].reshape(shape.batch, shape.context, shape.kv_heads, shape.dim).transpose(1, 2).contiguous()
        for pool in (key_pool, value_pool)
    )
    mask = None
    if shape.queries > 1:
        position = torch.arange(shape.context - shape.queries, shape.context, device="cuda")
        mask = torch.arange(shape.context, device="cuda")[None, :] <= position[:, None]
    return query, keys, values, mask


def seconds(calls: list[Callable[[], Any]], torch: Any, repeats: int = 15) -> float:
    """Median over replays of a graph of these calls, seconds a call."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for _ in range(repeats + 2):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        graph.replay()
        after.record()
        torch.cuda.synchronize()
        times.append(before.elapsed_time(after) / 1e3 / len(calls))
    return statistics.median(times[2:])


def copy_rate(torch: Any) -> float:
    """Bytes per second of a plain copy, read and written bytes both counted."""
    source = torch.empty(2**30, dtype=torch.int8, device="cuda").zero_()
    target = torch.empty_like(source)
    return 2 * source.numel() / seconds([lambda: target.copy_(source)] * 4, torch)


def fault(shape: Shape, twin: Callable[..., Any], torch: Any) -> float:
    """Largest difference between twin and definition (on float64), by the largest output."""
    call = arguments(shape, 0, torch)
    wide = definition(*(array.double() for array in call[:3]), *call[3:])
    found = float((twin(*call).double() - wide).abs().max() / wide.abs().max())
    return math.inf if math.isnan(found) else found


def measure(shape: Shape, twin: Callable[..., Any], copy: float, torch: Any) -> dict[str, float]:
    """Times of one cell."""
    attention = torch.nn.functional.scaled_dot_product_attention
    calls = [arguments(shape, seed, torch) for seed in range(shape.calls)]
    paged = seconds([lambda call=call: twin(*call) for call in calls], torch)
    plain = [gathered(shape, call, torch) for call in calls]
    del calls
    dense = seconds(
        [lambda q=q, k=k, v=v, m=m: attention(q, k, v, attn_mask=m, enable_gqa=True) for q, k, v, m in plain], torch
    )
    rate = shape.bytes_moved / paged
    return {
        "microseconds": round(paged * 1e6, 2),
        "sdpa_microseconds": round(dense * 1e6, 2),
        "speedup": round(dense / paged, 3),
        "terabytes_per_second": round(rate / 1e12, 3),
        "copy_share": round(rate / copy, 3),
    }


def main() -> int:
    """Check each shape, then measure and print it."""
    try:
        import torch
    except ImportError:
        print("benchmarks/attention.py needs torch (the extra `live`) and a CUDA device")
        return 2
    if not torch.cuda.is_available():
        print("benchmarks/attention.py needs a CUDA device")
        return 2
    from specsim.kernels.attention_triton import ragged_paged_attention as twin

    copy, cells = copy_rate(torch), []
    print(f"{torch.cuda.get_device_name()}: a copy moves {copy / 1e12:.2f} TB/s")
    for heads, kv_heads, dim in MODELS:
        for shape in (
            Shape(batch, queries, context, heads, kv_heads, dim)
            for batch in BATCHES
            for queries in QUERIES
            for context in CONTEXTS
        ):
            if (worst := fault(shape, twin, torch)) > LARGEST_ERROR:
                print(f"{shape}: the twin is off by {worst:.1e}; nothing is measured", file=sys.stderr)
                return 1
            cells.append(vars(shape) | measure(shape, twin, copy, torch))
            print(" ".join(f"{name}={value}" for name, value in cells[-1].items()), flush=True)
    result = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "copy_bytes_per_second": copy}
    print(json.dumps(result | {"dtype": "bfloat16", "block_size": BLOCK_SIZE, "cells": cells}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
