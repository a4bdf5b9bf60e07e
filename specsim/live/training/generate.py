"""Let the target answer prompts: the data of self-distillation, when there are none yet."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specsim.errors import InputError
from specsim.live.prompts import read_prompts
from specsim.live.training.data import TokenData, join_rows

logger = logging.getLogger(__name__)

TEMPERATURE = 0.8


def encode_prompts(tokenizer: Any, paths: Sequence[Path]) -> tuple[list[np.ndarray], list[int], tuple[str, ...]]:
    """Prompts as tokens, as the recorder encodes them; each one's domain; and the domains' names.

    paths   prompt files or folders, see `read_prompts`
    """
    prompts = [prompt for file in read_prompts(paths) for prompt in file.prompts]
    names = tuple(sorted({prompt.domain for prompt in prompts}))
    rows = []
    for prompt in prompts:
        if tokenizer.chat_template:
            messages = [{"role": "user", "content": prompt.text}]
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        else:
            ids = tokenizer.encode(prompt.text)
        if not ids:
            raise InputError(f"prompt {prompt.id}: no tokens; the tokenizer knows nothing in it")
        rows.append(np.asarray(ids, np.int64))
    return rows, [names.index(prompt.domain) for prompt in prompts], names


@torch.inference_mode()
def answer_prompts(
    model: Any,
    prompts: Sequence[np.ndarray],
    domain: Sequence[int],
    domains: tuple[str, ...],
    *,
    max_new_tokens: int = 256,
    batch_size: int = 64,
    samples: int = 1,
    seed: int = 0,
) -> TokenData:
    """Each prompt's greedy output, and sampled ones.

    model    the transformers model
    domain   of each prompt, index into `domains`
    samples  sampled outputs a prompt, at temperature TEMPERATURE
    """
    torch.manual_seed(seed)
    stop = _stop_ids(model)
    order = np.argsort([len(prompt) for prompt in prompts], kind="stable")
    rows: list[tuple[int, np.ndarray, int]] = []
    for attempt in range(samples + 1):
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size]
            outputs = _generate(model, [prompts[index] for index in part], max_new_tokens, stop, attempt > 0)
            rows += [(int(index), output, 2 * (attempt > 0)) for index, output in zip(part, outputs, strict=True)]
            logger.info("answered %d of %d", len(rows), len(order) * (samples + 1))
    rows.sort(key=lambda row: row[0])
    return join_rows(
        [prompts[index] for index, _, _ in rows],
        [output for _, output, _ in rows],
        [domain[index] for index, _, _ in rows],
        [kind for _, _, kind in rows],
        domains,
    )


def _stop_ids(model: Any) -> list[int]:
    stop = getattr(model.generation_config, "eos_token_id", None)
    return [] if stop is None else [int(token) for token in (stop if isinstance(stop, (list, tuple)) else [stop])]


def _generate(
    model: Any, prompts: list[np.ndarray], max_new_tokens: int, stop: list[int], sampled: bool
) -> list[np.ndarray]:
    """Outputs, their stop token included; nothing of the model's generation settings applies but its stop tokens."""
    from transformers import GenerationConfig

    width = max(len(prompt) for prompt in prompts)
    pad = stop[0] if stop else 0
    tokens = torch.full((len(prompts), width), pad)
    mask = torch.zeros_like(tokens)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = torch.from_numpy(prompt)
        mask[row, width - len(prompt) :] = 1
    law = {"do_sample": True, "temperature": TEMPERATURE, "top_k": 0, "top_p": 1.0} if sampled else {"do_sample": False}
    settings = GenerationConfig(max_new_tokens=max_new_tokens, eos_token_id=stop or None, pad_token_id=pad, **law)
    out = model.generate(tokens.to(model.device), attention_mask=mask.to(model.device), generation_config=settings)
    cut = []
    for row in out[:, width:].cpu().numpy():
        ends = np.flatnonzero(np.isin(row, stop))
        cut.append(row[: ends[0] + 1] if len(ends) else row)
    return cut
