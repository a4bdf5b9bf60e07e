"""Attention over the paged cache, put into unmodified transformers models through `AttentionInterface`.

A pass is one row of N packed tokens of several requests. Each layer stores the keys and values of all of them, then
each token attends to its own request's positions up to its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AttentionInterface

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
    layers  those that have attended in this pass
    """

    kv: PagedKV
    packed: Packed
    shared: Any
    ops: Ops
    layers: set[int] = field(default_factory=set)


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
    now.layers.add(layer)
    keys, values = now.kv.keys[layer], now.kv.values[layer]
    for what, given, pool in (("keys", key, keys), ("values", value, values)):
        if (given.shape[1], given.shape[3]) != pool.shape[2:]:
            raise InputError(
                f"layer {layer}: its {what} are {given.shape[1]} heads of {given.shape[3]}; the paged cache holds "
                f"{pool.shape[2]} heads of {pool.shape[3]} in every layer"
            )
    now.ops.store_kv(key[0].transpose(0, 1), value[0].transpose(0, 1), keys, values, now.packed.kv_index)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = now.ops.attend(query[0].transpose(0, 1), keys, values, now.shared, scale)
    return out[None], None


class AttentionSwitch:
    """Turns a model's layers to `paged_attention` for the time of a pass, and back: between passes the model is as it
    was, for whoever else runs it.

    model   a transformers model

    Raises  InputError for an architecture whose attention cannot be replaced
    """

    def __init__(self, model: Any) -> None:
        # No mask is registered under the name: transformers then makes none, and does not look into the positions for
        # packed sequences, which the host would have to wait for.
        AttentionInterface.register(NAME, paged_attention)
        before = model.config._attn_implementation
        try:
            model.set_attn_implementation(NAME)
            replaced = model.config._attn_implementation == NAME
            model.set_attn_implementation(before)
        except (ValueError, NotImplementedError) as error:
            told = " ".join(str(error).split())[:200]
            raise InputError(f"{type(model).__name__}: its attention cannot use the paged cache: {told}") from None
        # An early exit has a configuration of its own, while its layers keep the whole model's.
        held = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
        # Where transformers cannot replace attention it only warns; a first pass then finds the layers.
        self._configs = list(held.values()) if replaced else []

    @contextmanager
    def paged(self) -> Iterator[None]:
        """Attention is paged inside."""
        before = [config._attn_implementation for config in self._configs]
        try:
            for config in self._configs:
                config._attn_implementation = NAME
            yield
        finally:
            for config, implementation in zip(self._configs, before, strict=True):
                config._attn_implementation = implementation


def check_shape(config: Any, name: str) -> None:
    """Refuse a text configuration that does not say what a paged cache of it looks like.

    Raises  InputError
    """
    for fact in ("max_position_embeddings", "num_hidden_layers", "num_attention_heads", "hidden_size"):
        if not hasattr(config, fact):
            raise InputError(
                f"{name}: its configuration has no {fact}; only models with ordinary attention are supported"
            )


def check_every_layer_attends(model: Any, attended: set[int]) -> None:
    """Refuse a model whose layers keep what they know of earlier tokens anywhere but in the paged cache.

    attended  layers that attended in a pass

    Raises    InputError naming the first layer that did not
    """
    for layer in range(int(model.config.get_text_config().num_hidden_layers)):
        if layer not in attended:
            raise InputError(
                f"{type(model).__name__}: layer {layer} does not attend through the paged cache; only models whose "
                "every layer has ordinary attention are supported"
            )
