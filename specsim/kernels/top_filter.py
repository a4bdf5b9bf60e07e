"""Top-k and nucleus filters: which tokens a law keeps before one is drawn from it."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from specsim.core import Array
from specsim.errors import InputError


def top_filter(logits: Array, top_k: Array, top_p: Array, temperature: Array | None = None) -> Array:
    """The logits, with -inf where a token is outside its row's k most likely or outside its nucleus.

    logits       [N, V] float
    top_k        [N] int64, tokens kept, at least 0; 0, or V and more: all
    top_p        [N] float, in (0, 1]; 1: all. The nucleus is the fewest most likely tokens whose probabilities, among
                 those that top-k keeps, reach top_p; the most likely token always stays
    temperature  [N] float, what the logits are yet to be divided by, at least 0; it widens the nucleus, and at 0
                 counts as 1, for the most likely token is all that is then asked for (None: 1 for all)
    returns      [N, V] float, of the logits' type
    Raises       InputError where shapes contradict each other

    Both sides of a verification must be filtered, each by its own logits, or the draft law is the wrong one.

    Temperature, then k, then p, as vLLM and transformers do. Tokens level with the k-th are all kept, as both do.
    Where the nucleus ends among tokens level with each other, all of them are kept too: those libraries cut between
    equals by where a sort left them, which no device repeats for another. NaN stays, for verification to find.

    Source: Fan et al. (arXiv 1805.04833), top-k; Holtzman et al. (arXiv 1904.09751), nucleus sampling.
    """
    xp = array_namespace(logits)
    _check(logits, top_k, top_p, temperature)
    value = logits
    if logits.dtype != xp.float64:
        value = xp.astype(value, xp.float32)
    if temperature is not None:
        heat = xp.astype(xp.where(temperature > 0.0, temperature, 1.0), value.dtype)
        value = value / heat[:, None]
    ranked = xp.sort(value, axis=1, descending=True)
    vocabulary = logits.shape[1]
    all_kept = (top_k <= 0) | (top_k >= vocabulary)
    last = xp.where(all_kept, vocabulary, top_k) - 1
    least = xp.take_along_axis(ranked, last[:, None], axis=1)
    least = xp.where((top_p < 1.0)[:, None], _nucleus_edge(ranked, least, top_p, xp), least)
    out = xp.asarray(-xp.inf, dtype=logits.dtype, device=logits.device)
    return xp.where(value < least, out, logits)


def _nucleus_edge(ranked: Array, least: Array, top_p: Array, xp: Any) -> Array:
    """[N, 1] float, the smallest value in each row's nucleus.

    ranked  [N, V] float, falling
    least   [N, 1] float, the smallest that top-k keeps
    """
    weights = xp.where(ranked >= least, xp.exp(ranked - ranked[:, :1]), 0.0)
    sums = xp.cumulative_sum(xp.astype(weights, xp.float64), axis=1)
    # A token is in while those before it have not reached the share; one beyond top-k never is, for all is reached.
    before = xp.concat([xp.zeros_like(sums[:, :1]), sums[:, :-1]], axis=1)
    inside = before < xp.astype(top_p, xp.float64)[:, None] * sums[:, -1:]
    size = xp.sum(xp.astype(inside, xp.int64), axis=1, keepdims=True)
    return xp.take_along_axis(ranked, xp.where(size > 0, size - 1, 0), axis=1)


def _check(logits: Array, top_k: Array, top_p: Array, temperature: Array | None) -> None:
    """Raise InputError where shapes contradict each other."""
    if len(logits.shape) != 2 or logits.shape[1] == 0:
        raise InputError(f"logits have shape {tuple(logits.shape)}: allowed is [N, V] with at least one token")
    rows = logits.shape[0]
    for name, values in (("top_k", top_k), ("top_p", top_p), ("temperature", temperature)):
        if values is not None and tuple(values.shape) != (rows,):
            raise InputError(f"{name} has shape {tuple(values.shape)}: allowed is [{rows}]")
