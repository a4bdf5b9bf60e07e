"""Plain decoding in batches: the target's own path, greedy or sampled, which every recorded draft is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from specsim.kernels.verify import Proposal, Sampling
from specsim.live.models import LoadedModel, cache_keyword
from specsim.live.ops import choose_ops
from specsim.telemetry import FinishReason


@dataclass(frozen=True)
class Output:
    """What the target answered.

    token_ids       [P] int64, the stop token included when there is one
    finish_reason   `stop` when the last token is a stop token, else `length`
    """

    token_ids: np.ndarray
    finish_reason: FinishReason


def decode_greedy(target: LoadedModel, prompts: Sequence[np.ndarray], max_new_tokens: int) -> list[Output]:
    """Continue every prompt with the most likely token until a stop token or the limit.

    target          the model
    prompts         [T] int64 token ids each, any lengths, at least one token
    max_new_tokens  most tokens of an output
    returns         one output a prompt, in their order

    Nothing of the model's generation settings applies (no repetition penalty, no minimum length): a draft can
    only be judged against the plain argmax.
    """
    return decode(target, prompts, max_new_tokens, lambda logits, position: logits.argmax(-1))


def decode_sampled(
    target: LoadedModel, prompts: Sequence[np.ndarray], seeds: Sequence[int], temperature: float, max_new_tokens: int
) -> list[Output]:
    """Continue every prompt as the engine does that samples without drafts, or with certain ones.

    seeds           of each request: its token at output position p is drawn with uniform(seed, p, TARGET)
    temperature     above 0
    returns         see `decode_greedy`
    """
    verify = choose_ops(target.device).verify
    keys = torch.tensor(seeds, dtype=torch.int64, device=target.device)
    rows = torch.arange(len(prompts), device=target.device)
    nothing = Proposal(rows.new_zeros((len(prompts), 0)), torch.zeros_like(rows))
    heat = torch.full((len(prompts),), temperature, dtype=torch.float32, device=target.device)

    def choose(logits: torch.Tensor, position: int) -> torch.Tensor:
        verdict = verify(logits, rows, nothing, Sampling(heat, keys, torch.full_like(rows, position)))
        token: torch.Tensor = verdict.next_token
        return token

    return decode(target, prompts, max_new_tokens, choose)


def decode(
    target: LoadedModel,
    prompts: Sequence[np.ndarray],
    max_new_tokens: int,
    choose: Callable[[torch.Tensor, int], torch.Tensor],
) -> list[Output]:
    """Continue every prompt until a stop token or the limit.

    choose  (logits [B, V], output position) -> tokens [B] int64
    """
    tokens, mask = _left_pad(prompts, target)
    with torch.inference_mode():
        path = _decode(target, tokens, mask, max_new_tokens, choose)
    return [_cut(row, target.stop_ids) for row in path]


def _left_pad(prompts: Sequence[np.ndarray], target: LoadedModel) -> tuple[Any, Any]:
    width = max(len(prompt) for prompt in prompts)
    tokens = torch.zeros((len(prompts), width), dtype=torch.int64)
    mask = torch.zeros((len(prompts), width), dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = torch.from_numpy(prompt)
        mask[row, width - len(prompt) :] = 1
    return tokens.to(target.device), mask.to(target.device)


def _decode(
    target: LoadedModel,
    tokens: Any,
    mask: Any,
    max_new_tokens: int,
    choose: Callable[[torch.Tensor, int], torch.Tensor],
) -> np.ndarray:
    cache = {cache_keyword(target.model): DynamicCache(config=target.model.config)}
    stop = torch.tensor(target.stop_ids, device=tokens.device)
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    position = mask.cumsum(1) - 1
    path: list[Any] = []
    while len(path) < max_new_tokens and not bool(ended.all()):
        logits = target.model(
            tokens, attention_mask=mask, position_ids=position.clamp(min=0), use_cache=True, logits_to_keep=1, **cache
        ).logits
        tokens = choose(logits[:, -1], len(path))[:, None]
        path.append(tokens)
        ended |= torch.isin(tokens[:, 0], stop)
        mask = torch.nn.functional.pad(mask, (0, 1), value=1)
        position = position[:, -1:] + 1
    return torch.cat(path, 1).cpu().numpy()


def _cut(row: np.ndarray, stop_ids: tuple[int, ...]) -> Output:
    stops = np.flatnonzero(np.isin(row, stop_ids))
    if len(stops):
        return Output(row[: stops[0] + 1], "stop")
    return Output(row, "length")
