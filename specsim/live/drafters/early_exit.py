"""Early exit: the target's first layers, its final norm and its output head, as a drafter.

Source: self-speculative decoding by early exit (LayerSkip, Elhoushi et al., 2024), here without any training.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from specsim.core import DrafterSpec
from specsim.errors import InputError
from specsim.live.drafters.proposals import Proposals
from specsim.live.models import LoadedModel, cache_keyword

SCORE_SOURCE = "softmax probability of the drafted (most likely) token at the exit, temperature 1"

POSITIONS_AT_ONCE = 256
"""Output positions whose blocks are drafted together; bounds the attention mask and the logits in memory."""


def first_layers(model: Any, num_layers: int) -> Any:
    """A causal language model that stops after its first layers; it shares every weight with `model`.

    model       a transformers causal language model whose decoder keeps its layers in `layers`
    num_layers  layers to keep

    Raises      InputError for a model that keeps its layers elsewhere
    """
    whole = model.get_decoder()
    if whole is not getattr(model, model.base_model_prefix) or not hasattr(whole, "layers"):
        raise InputError(f"{type(model).__name__}: an early exit needs a model that keeps its layers in `layers`")
    decoder = _shallow_copy(whole)
    decoder.layers = type(decoder.layers)(list(decoder.layers)[:num_layers])
    decoder.config = copy.deepcopy(decoder.config)
    decoder.config.num_hidden_layers = num_layers
    if getattr(decoder.config, "layer_types", None):
        decoder.config.layer_types = decoder.config.layer_types[:num_layers]
    exit_model = _shallow_copy(model)
    exit_model.config = decoder.config
    setattr(exit_model, model.base_model_prefix, decoder)
    return exit_model


def _shallow_copy(module: Any) -> Any:
    """A module whose children can be replaced without touching the original's."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    return twin


class EarlyExit:
    """Drafts greedily with the first layers of the target.

    target      the model drafted for
    num_layers  layers that run, at least 1 and fewer than the target has
    max_depth   draft tokens a block

    Raises      InputError for a number of layers that the target does not have
    """

    def __init__(self, target: LoadedModel, num_layers: int, max_depth: int) -> None:
        if not 1 <= num_layers < target.num_layers:
            raise InputError(
                f"drafter 'exit{num_layers}': model {target.name!r} has {target.num_layers} layers, so an early exit "
                f"is at layer 1 to {target.num_layers - 1}"
            )
        self._model = first_layers(target.model, num_layers)
        self._device = target.device
        self.score_source = SCORE_SOURCE
        self.spec = DrafterSpec(
            name=f"exit{num_layers}",
            kind="early_exit",
            law="point_mass",
            structure="autoregressive",
            scores=("drawn_prob", "max_prob", "margin"),
            max_depth=max_depth,
            max_context=self._model.config.max_position_embeddings,
            passes="per_depth",
            target_fraction=_weight_share(target.model, num_layers),
        )

    @property
    def model(self) -> Any:
        """The causal language model that ends at the exit."""
        return self._model

    def draft(self, cache: Any, tokens: torch.Tensor, depth: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draft for a batch of requests of one length, a pass a token.

        cache       keys and values of everything before `tokens` in the exit's layers; grows by `depth` positions
        tokens      [B] int64, the last token of each request
        depth       draft tokens a request, K
        returns     token_ids [B, K] int64 and confidence [B, K] float64
        """
        drafts = []
        for _ in range(depth):
            logits = self._model(tokens[:, None], use_cache=True, **{cache_keyword(self._model): cache}).logits[:, -1]
            drafts.append(_most_likely(logits))
            tokens = drafts[-1][0]
        return torch.stack([draft[0] for draft in drafts], 1), torch.stack([draft[1] for draft in drafts], 1)

    def propose_everywhere(self, prompt: np.ndarray, output: np.ndarray) -> Proposals:
        """See `Drafter.propose_everywhere`.

        All positions draft together: one pass feeds the text itself, then one pass a draft depth feeds every
        position's latest draft as a branch of a tree over the cached text.
        """
        text = torch.from_numpy(np.concatenate([prompt, output[:-1]])).to(self._device)
        with torch.inference_mode():
            pieces = _draft_chunks(self._model, text, len(prompt), len(output), self.spec.max_depth)
        assert self.spec.max_context is not None
        room = self.spec.max_context - len(prompt) - np.arange(len(output))
        num_drafts = np.clip(room, 0, self.spec.max_depth)
        beyond = np.arange(self.spec.max_depth) >= num_drafts[:, None]
        token_ids, confidence, margin = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
        token_ids[beyond] = -1
        confidence[beyond] = 0.0
        margin[beyond] = 0.0
        return Proposals(token_ids, num_drafts, confidence, margin)


def _weight_share(model: Any, num_layers: int) -> float:
    """Weights that a draft pass reads as a share of those that a target pass reads; the head counts in both."""
    head = model.get_output_embeddings().weight.numel()
    layers = [sum(weight.numel() for weight in layer.parameters()) for layer in model.get_decoder().layers]
    return round((sum(layers[:num_layers]) + head) / (sum(layers) + head), 4)


Drafted = tuple[np.ndarray, np.ndarray, np.ndarray]
"""token_ids [P, D] int64, confidence [P, D] float64, margin [P, D] float64 of some positions."""


def _draft_chunks(model: Any, text: Any, prompt_length: int, num_positions: int, depth: int) -> list[Drafted]:
    """Blocks of all positions, POSITIONS_AT_ONCE at a time, one cache of the text growing under them.

    text    [prompt_length + num_positions - 1] int64, the tokens that are fed
    """
    cache = DynamicCache(config=model.config)
    pieces = []
    for first in range(0, num_positions, POSITIONS_AT_ONCE):
        count = min(POSITIONS_AT_ONCE, num_positions - first)
        fed = prompt_length - 1 + first + count
        logits = _feed(model, cache, text[None, cache.get_seq_length() : fed], count)
        tree = _Tree(cache, fed, anchors=_span(fed - count, fed, text.device))
        pieces.append(_draft_branches(model, tree, logits, depth))
        if depth > 1:
            cache.crop(-(depth - 1) * count)  # negative: tokens to drop, the one form every transformers takes
    return pieces


def _feed(model: Any, cache: Any, tokens: Any, keep: int) -> Any:
    """Logits [keep, V] after the last tokens of a piece of text, which is added to the cache."""
    return model(tokens, use_cache=True, logits_to_keep=keep, **{cache_keyword(model): cache}).logits[0]


@dataclass(frozen=True)
class _Tree:
    """One branch a position, all over the same cached text.

    cache       keys and values of the text, then of every branch's drafts, depth after depth
    text        tokens of the text
    anchors     [P] int64, index in the text of the token that each branch follows
    """

    cache: Any
    text: int
    anchors: Any

    def mask(self, depth: int, dtype: Any) -> Any:
        """[1, 1, P, text + depth * P], 0 where the branch's draft number `depth` may look, else the lowest float.

        It sees the text up to its anchor, and the drafts of its own branch.
        """
        device = self.anchors.device
        sees_text = _span(0, self.text, device) <= self.anchors[:, None]
        sees_drafts = torch.eye(len(self.anchors), dtype=torch.bool, device=device).repeat(1, depth)
        sees = torch.cat([sees_text, sees_drafts], dim=1)
        hidden = torch.finfo(dtype).min
        return torch.zeros(sees.shape, dtype=dtype, device=device).masked_fill(~sees, hidden)[None, None]


def _draft_branches(model: Any, tree: _Tree, logits: Any, depth: int) -> Drafted:
    """Draft greedily along every branch; `logits` [P, V] follow the anchors."""
    limit = model.config.max_position_embeddings - 1  # beyond it a draft is not proposed, whatever is computed
    drafts = [_most_likely(logits)]
    for step in range(1, depth):
        logits = model(
            drafts[-1][0][None],
            attention_mask=tree.mask(step, logits.dtype),
            position_ids=(tree.anchors + step).clamp(max=limit)[None],
            use_cache=True,
            **{cache_keyword(model): tree.cache},
        ).logits[0]
        drafts.append(_most_likely(logits))
    token_ids, confidence, margin = (torch.stack(column, dim=1).cpu().numpy() for column in zip(*drafts, strict=True))
    return token_ids, confidence, margin


def _most_likely(logits: Any) -> tuple[Any, Any, Any]:
    """Most likely token [P], its probability [P] float64, and its lead over the next logit [P] float64."""
    top = logits.topk(2, dim=-1)
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    confidence = (top.values[:, 0].to(wide.dtype) - wide.logsumexp(-1)).exp()
    margin = top.values[:, 0].double() - top.values[:, 1].double()
    # argmax, not topk's first: on a tie the target's own greedy choice is the argmax.
    return logits.argmax(-1), confidence.double().clamp(max=1.0), margin


def _span(start: int, stop: int, device: Any) -> Any:
    return torch.arange(start, stop, device=device)
