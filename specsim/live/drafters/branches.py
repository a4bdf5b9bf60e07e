"""Attention of many branches over one text: each sees the text up to a point of its own, and itself."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from specsim.live.drafters.decoder_layer import attend_dense

KeyValue: TypeAlias = tuple[Tensor, Tensor]
"""Keys and values of one layer, [..., K, Hkv, d] each."""

QUERIES_AT_ONCE = 256
"""Rows of a text that attend together; bounds the scores in memory."""


def attend_causally(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """[N, Hq, d], what each token of a text reads of those up to itself.

    query       [N, Hq, d]
    key, value  [N, Hkv, d]
    """
    places = torch.arange(len(key), device=key.device)
    read = [
        attend_dense(part, key, value, places <= where[:, None])
        for part, where in zip(query.split(QUERIES_AT_ONCE), places.split(QUERIES_AT_ONCE), strict=True)
    ]
    return torch.cat(read)


def attend_branches(query: Tensor, text: KeyValue, own: KeyValue, visible: Tensor) -> Tensor:
    """What the tokens of branches read.

    query    [P, Q, Hq, d] of P branches
    text     [M, Hkv, d] each
    own      [P, K, Hkv, d] each: every token of a branch sees all of them
    visible  [P, M] bool, which of the text each branch sees
    returns  [P, Q, Hq, d]
    """
    heads, kv_heads = query.shape[2], own[0].shape[2]
    grouped = query.unflatten(2, (kv_heads, heads // kv_heads))
    of_text = torch.einsum("pqhgd,mhd->phgqm", grouped, text[0]).masked_fill(
        ~visible[:, None, None, None, :], float("-inf")
    )
    of_own = torch.einsum("pqhgd,pkhd->phgqk", grouped, own[0])
    scores = torch.cat([of_text, of_own], dim=-1) * query.shape[-1] ** -0.5
    weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    split = visible.shape[1]
    read = torch.einsum("phgqm,mhd->pqhgd", weights[..., :split], text[1])
    read = read + torch.einsum("phgqk,pkhd->pqhgd", weights[..., split:], own[1])
    return read.flatten(2, 3)
