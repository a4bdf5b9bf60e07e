"""Which implementation of each operation an engine uses: chosen once, by device."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from specsim.policies.budget.dcut import DCut
from specsim.policies.budget.fixed_ratio import FixedRatio
from specsim.policies.controller import PlanKernel

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ops:
    """The operations of one device.

    name      `definitions` or `triton`
    pack      see `kernels.pack.pack`
    store_kv  see `kernels.attention.store_kv`
    prepare   what all layers of a pass share: (packed, table [R, M], block_size, whole). Where it is a `whole` pass,
              every request feeds equally many tokens, and each of them sees all of its request's
    attend    (query [N, Hq, d], key_pool, value_pool, what `prepare` returned, scale) -> [N, Hq, d]; defined by
              `kernels.attention.ragged_paged_attention`
    verify    see `kernels.verify.verify`: (logits, rows, proposal, sampling) -> Verdict
    plan      a kernel for (budget policy, most requests, most drafts a request): its `plan` by other means (None: its
              own array code plans)
    """

    name: str
    pack: Callable[..., Any]
    store_kv: Callable[..., None]
    prepare: Callable[..., Any]
    attend: Callable[..., torch.Tensor]
    verify: Callable[..., Any]
    plan: Callable[[Any, int, int], PlanKernel | None]


def choose_ops(device: str | torch.device) -> Ops:
    """Triton's twins on CUDA, the definitions elsewhere."""
    ops = _triton() if torch.device(device).type == "cuda" else _definitions()
    logger.info("operations on %s: %s", device, ops.name)
    return ops


def _definitions() -> Ops:
    from specsim.kernels.pack import pack
    from specsim.kernels.verify import verify
    from specsim.live.cpu_attention import attend, prepare, store_kv

    return Ops("definitions", pack, store_kv, prepare, attend, verify, lambda policy, batch, depth: None)


def _triton() -> Ops:
    from specsim.kernels import attention_triton, dcut_triton, pack_triton, store_kv_triton, verify_triton

    def prepare(packed: Any, table: Any, block_size: int, whole: bool = False) -> Any:
        if not whole:
            return table, packed.query_start, packed.context
        # A token that sees all its request's positions is, to the kernel, a request of one token at the end.
        width = len(packed.tokens) // len(table)
        alone = torch.arange(width * len(table) + 1, device=table.device)
        return table.repeat_interleave(width, 0), alone, packed.context.repeat_interleave(width)

    def attend(query: Any, key_pool: Any, value_pool: Any, shared: Any, scale: float) -> Any:
        table, query_start, context = shared
        return attention_triton.ragged_paged_attention(query, key_pool, value_pool, table, query_start, context, scale)

    def plan(policy: Any, batch: int, depth: int) -> PlanKernel | None:
        if type(policy) is FixedRatio:  # the best of one candidate is that one
            policy = DCut(ratios=(policy.ratio,), count=policy.count)
        if type(policy) is not DCut or not dcut_triton.fits(batch, depth):
            return None
        return partial(dcut_triton.plan, policy)

    return Ops(
        name="triton",
        pack=pack_triton.pack,
        store_kv=store_kv_triton.store_kv,
        prepare=prepare,
        attend=attend,
        verify=verify_triton.verify,
        plan=plan,
    )
