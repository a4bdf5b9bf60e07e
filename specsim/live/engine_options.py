"""How a live engine is set up, beyond the scheduling limits it shares with the simulator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Set-up of a live engine.

    seed            of the policies' draws, and of requests that bring none
    buckets         token counts captured as CUDA graphs, rising (None: the cost table's capture sizes on CUDA, none
                    elsewhere)
    kv_memory       share of the free device memory for the KV cache where `num_kv_blocks` is not given, in (0, 1]
    launch_ahead    whether the beginning of a step may be launched before the host has read the step in front, on CUDA
    """

    seed: int = 0
    buckets: tuple[int, ...] | None = None
    kv_memory: float = 0.8
    launch_ahead: bool = True
