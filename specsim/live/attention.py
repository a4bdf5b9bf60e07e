"""Attention over the paged cache, put into unmodified transformers models through `AttentionInterface`.

A pass is one row of N packed tokens of several requests. Each layer stores the keys and values of all of them, then
each token attends to its own request's positions up to its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from specsim.errors import InputError
from specsim.kernels.pack import Packed
from specsim.live.ops import Ops
from specsim.live.paged_kv import PagedKV

NAME = "specsim_paged"


@dataclass(frozen=True, slots=True)
class PagedPass:
    """What attention needs to know of the pass under way.

    kv      pools of the model that runs
    packed  the tokens and where they stand
    shared  what `ops.prepare` found out for all layers
    ops     the operations of the device
    """

    kv: PagedKV
    packed: Packed
    shared: Any
    ops: Ops


_CURRENT: ContextVar[PagedPass] = ContextVar("specsim_paged_pass")


@contextmanager
def attending(paged: PagedPass) -> Iterator[None]:
    """Let the models that run inside attend to the cache of this pass."""
    token = _CURRENT.set(paged)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """One layer's attention, with the arguments that transformers gives.

    query       [1, Hq, N, d]
    key, value  [1, Hkv, N, d]
    returns     [1, N, Hq, d], and no weights
    """
    for option in ("softcap", "sliding_window", "s_aux"):
        if options.get(option) is not None:
            raise InputError(f"layer {module.layer_idx}: attention with {option} is not supported by the paged cache")
    now = _CURRENT.get()
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    keys, values = now.kv.keys[layer], now.kv.values[layer]
    now.ops.store_kv(key[0].transpose(0, 1), value[0].transpose(0, 1), keys, values, now.packed.kv_index)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = now.ops.attend(query[0].transpose(0, 1), keys, values, now.shared, scale)
    return out[None], None


def use_paged_attention(model: Any) -> None:
    """Let a model's layers attend through `paged_attention`; a pass must be under way when it runs."""
    AttentionInterface.register(NAME, paged_attention)
    AttentionMaskInterface.register(NAME, lambda *args, **kwargs: None)
    model.set_attn_implementation(NAME)
