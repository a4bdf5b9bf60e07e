"""Gates that hold what an engine emits against the exact law of the model's own logits."""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats

from specsim.live.engine import Engine
from specsim.live.models import LoadedModel
from specsim.live.sampling import SamplingParams

ALPHA = 0.01
"""Chance that a gate refuses a right engine. Seeds are fixed, so that a gate that passed passes always."""


def next_law(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """[..., V] probabilities of the next token: temperature, then top-k, then the nucleus. Written out anew."""
    scaled = logits / params.temperature
    weights = np.exp(scaled - scaled.max(-1, keepdims=True))
    ranked = -np.sort(-weights, axis=-1)
    if params.top_k:
        weights = np.where(weights >= ranked[..., params.top_k - 1, None], weights, 0.0)
        ranked = -np.sort(-weights, axis=-1)
    before = ranked.cumsum(-1) - ranked
    size = (before < params.top_p * ranked.sum(-1, keepdims=True)).sum(-1)
    weights = np.where(weights >= np.take_along_axis(ranked, size[..., None] - 1, -1), weights, 0.0)
    return weights / weights.sum(-1, keepdims=True)


def joint_law(target: LoadedModel, prompt: np.ndarray, params: SamplingParams, length: int) -> np.ndarray:
    """[V, ..., V] probability of every output of `length` tokens, from passes of the model without any cache."""
    size = target.model.config.vocab_size
    law = np.ones(())
    target.model.set_attn_implementation("sdpa")  # an engine that is made later takes its attention again
    with torch.inference_mode():
        for drawn in range(length):
            outputs = np.stack(np.unravel_index(np.arange(size**drawn), (size,) * max(drawn, 1)), -1)[:, :drawn]
            texts = torch.from_numpy(np.concatenate([np.tile(prompt, (len(outputs), 1)), outputs], 1))
            logits = target.model(texts, use_cache=False).logits[:, -1].numpy()
            law = law[..., None] * next_law(logits, params).reshape(*law.shape, size)
    return law


def sample(engine: Engine, prompt: np.ndarray, params: SamplingParams, count: int) -> np.ndarray:
    """[count, max_tokens] outputs of independent requests, each with a seed of its own."""
    requests = [engine.submit(prompt, params) for _ in range(count)]
    engine.run()
    return np.array([request.token_ids for request in requests])


def gates(outputs: np.ndarray, law: np.ndarray) -> dict[str, float]:
    """How likely a right engine strays at least this far, by gate: one for each pair of neighbours, and one for all.

    outputs  [N, L] tokens
    law      [V] * L, their exact law
    """
    found = {}
    length = law.ndim
    for first in range(length - 1):
        others = tuple(axis for axis in range(length) if axis not in (first, first + 1))
        pair = law.sum(others)
        seen = np.zeros_like(pair)
        np.add.at(seen, (outputs[:, first], outputs[:, first + 1]), 1)
        found[f"tokens {first} and {first + 1}"] = chi_square(seen.ravel(), pair.ravel() * len(outputs))
    # The rank of an output among all, spread evenly over its own share: uniform in [0, 1) under the law.
    flat = law.ravel()
    index = np.ravel_multi_index(tuple(outputs.T), law.shape)
    spread = np.random.default_rng(1).random(len(outputs))
    found["ranks of whole outputs"] = float(stats.kstest(flat.cumsum()[index] - flat[index] * spread, "uniform").pvalue)
    return found


def chi_square(seen: np.ndarray, expected: np.ndarray) -> float:
    """p-value; cells that expect fewer than 5 are counted as one, and one that the law forbids must be empty."""
    if seen[expected == 0].any():
        return 0.0
    rare = expected < 5
    seen, expected = (np.append(values[~rare], values[rare].sum()) for values in (seen, expected))
    kept = expected > 0
    return float(stats.chisquare(seen[kept], expected[kept] * seen.sum() / expected.sum()).pvalue)


def refused(found: dict[str, float]) -> list[str]:
    """Gates that do not let the outputs pass."""
    return [name for name, chance in found.items() if not chance >= ALPHA]
