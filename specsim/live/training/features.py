"""The target's hidden states of all training tokens, computed once and kept on the device."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specsim.errors import InputError
from specsim.live.gguf import file_sha256
from specsim.live.training.data import TokenData

logger = logging.getLogger(__name__)

RESERVE = 0.45
"""Share of the free device memory left to training itself."""


@dataclass(frozen=True)
class Target:
    """The frozen model that drafters are trained for.

    model           the transformers model, in eval mode
    name            its name
    model_hash      sha256 of its weights, as `load_model` gives it (empty: not known)
    embedding, head [V, h], its frozen embedding and LM head
    """

    model: Any
    name: str
    model_hash: str
    embedding: Tensor
    head: Tensor

    @property
    def config(self) -> Any:
        """Its text configuration."""
        return self.model.config.get_text_config()

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.head.device


@dataclass(frozen=True)
class FeatureCache:
    """Hidden states of the N tokens of some data.

    data      the rows that are cached
    layers    feature layers, 0-based
    scales    [F], root mean square of each layer's states: the cache holds states divided by it
    features  [N, F * h] on the device
    best      [N] int64, the target's most likely token after each prefix
    """

    data: TokenData
    layers: tuple[int, ...]
    scales: tuple[float, ...]
    features: Tensor
    best: np.ndarray

    def columns(self, layers: tuple[int, ...]) -> list[int] | None:
        """Columns of `features` that hold some of the layers (None: all of them, in order).

        Raises      InputError for a layer that is not cached
        """
        unknown = [layer for layer in layers if layer not in self.layers]
        if unknown:
            raise InputError(f"feature layer {unknown[0]}: cached are {', '.join(map(str, self.layers))}")
        if layers == self.layers:
            return None
        width = self.features.shape[1] // len(self.layers)
        places = [self.layers.index(layer) for layer in layers]
        return [place * width + column for place in places for column in range(width)]

    def scales_of(self, layers: tuple[int, ...]) -> tuple[float, ...]:
        """Scales of some of the layers."""
        return tuple(self.scales[self.layers.index(layer)] for layer in layers)


def wrap_target(model: Any, name: str, model_hash: str = "") -> Target:
    """The target of a causal language model."""
    model = model.eval().requires_grad_(False)
    return Target(
        model=model,
        name=name,
        model_hash=model_hash,
        embedding=model.get_input_embeddings().weight.detach(),
        head=model.get_output_embeddings().weight.detach(),
    )


def load_target(source: str, dtype: str, device: str) -> Target:
    """Load the model that drafters are trained for.

    source   a folder of safetensors (needs no tokenizer), or whatever `load_model` takes

    Raises   InputError when it cannot be loaded
    """
    folder = Path(source)
    if not folder.is_dir():
        from specsim.live.models import load_model

        loaded = load_model(source, dtype=dtype, device=device)
        return wrap_target(loaded.model, loaded.name, loaded.model_hash)
    from transformers import AutoModelForCausalLM

    model: Any
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), use_safetensors=True, attn_implementation="sdpa"
        )
    except (OSError, ValueError) as error:
        raise InputError(f"cannot load model {source!r}: {str(error).splitlines()[0][:200]}") from None
    digest = hashlib.sha256()  # as `load_model` hashes a folder
    for file in sorted(folder.glob("*.safetensors")):
        digest.update(f"{file.name} {file_sha256(file)}\n".encode())
    return wrap_target(model.to(device), folder.name, digest.hexdigest())


def cache_features(
    target: Target,
    data: TokenData,
    layers: tuple[int, ...],
    *,
    dtype: torch.dtype = torch.bfloat16,
    batch_tokens: int = 65536,
    limit_bytes: int | None = None,
    scaled: bool = True,
    seed: int = 0,
) -> FeatureCache:
    """Run the target over the data and keep what drafters read.

    layers        0-based; the last layer is not allowed, since libraries hand its output out normalised
    dtype         of the cache
    batch_tokens  tokens of one pass, padding included
    limit_bytes   most memory (None: what the device has free, less a reserve); when the data need more, a random
                  part of their rows is kept
    scaled        whether states are divided by their root mean square, layer by layer
    """
    depth = int(target.config.num_hidden_layers)
    if not layers or min(layers) < 0 or max(layers) >= depth - 1:
        raise InputError(f"feature layers {layers}: each must be in 0 .. {depth - 2}")
    width = len(layers) * int(target.config.hidden_size)
    data = _fit(data, width * dtype.itemsize, limit_bytes or _free_bytes(target.device), seed)
    began = time.monotonic()
    features = torch.empty((len(data.tokens), width), dtype=dtype, device=target.device)
    best = torch.empty(len(data.tokens), dtype=torch.int32, device=target.device)
    scales = _scales(target, data, layers, seed) if scaled else (1.0,) * len(layers)
    for place, states, last in _passes(target, data, layers, batch_tokens):
        parts = [state / scale for state, scale in zip(states, scales, strict=True)]
        features[place] = torch.cat(parts, -1).to(dtype)
        best[place] = _most_likely(last, target.head)
    kept = best.cpu().numpy().astype(np.int64)  # waits for the device
    seconds = time.monotonic() - began
    logger.info("cached %d tokens of %d rows, %.1f GB, in %.1f s", len(kept), len(data), features.nbytes / 1e9, seconds)
    return FeatureCache(data, layers, scales, features, kept)


def _free_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return 4 << 30
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * (1 - RESERVE))


def _fit(data: TokenData, token_bytes: int, limit: int, seed: int) -> TokenData:
    """All rows, or as many random ones as fit."""
    if len(data.tokens) * token_bytes <= limit:
        return data
    order = np.random.default_rng((seed, 17)).permutation(len(data))
    fitting = int(np.searchsorted(np.cumsum(data.lengths[order]) * token_bytes, limit, side="right"))
    if fitting == 0:
        raise InputError(f"not one row of the data fits in {limit / 1e9:.1f} GB of hidden states")
    logger.warning("memory holds hidden states of %d of %d rows; these are drawn at random", fitting, len(data))
    return data.select(np.sort(order[:fitting]))


def _scales(target: Target, data: TokenData, layers: tuple[int, ...], seed: int) -> tuple[float, ...]:
    """Median over tokens of each layer's root mean square: the first token's states are outliers."""
    rows = np.random.default_rng((seed, 18)).choice(len(data), min(64, len(data)), replace=False)
    found: list[list[Tensor]] = [[] for _ in layers]
    for _, states, _ in _passes(target, data.select(rows), layers, 16384):
        for layer, state in zip(found, states, strict=True):
            layer.append(state.float().square().mean(-1).sqrt())
    return tuple(max(float(torch.cat(layer).median()), 1e-6) for layer in found)


def _passes(
    target: Target, data: TokenData, layers: tuple[int, ...], batch_tokens: int
) -> Iterator[tuple[Tensor, list[Tensor], Tensor]]:
    """Passes over rows of like length: places in the data, [n, h] by layer, and [n, h] for the LM head."""
    order = np.argsort(data.lengths, kind="stable")[::-1]  # longest first: memory runs out at once or never
    done = 0
    while done < len(order):
        longest = int(data.lengths[order[done]])
        rows = order[done : done + max(1, batch_tokens // longest)]
        done += len(rows)
        steps = np.arange(longest)
        inside = steps < data.lengths[rows][:, None]
        place = np.minimum(data.starts[rows][:, None] + steps, data.starts[rows + 1][:, None] - 1)
        tokens = torch.from_numpy(data.tokens[place]).to(target.device)
        where = torch.from_numpy(np.flatnonzero(inside)).to(target.device)
        with torch.inference_mode():
            # Rows end in padding, which no earlier token sees: causal attention needs no mask.
            out = target.model.base_model(tokens, use_cache=False, output_hidden_states=True)
        states = [out.hidden_states[layer + 1].flatten(0, 1)[where] for layer in layers]
        yield torch.from_numpy(place[inside]).to(target.device), states, out.last_hidden_state.flatten(0, 1)[where]


def _most_likely(last: Tensor, head: Tensor, chunk: int = 16384) -> Tensor:
    return torch.cat([(part @ head.T).argmax(-1) for part in last.split(chunk)]).to(torch.int32)
