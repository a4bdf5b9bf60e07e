"""Prompts of a session as the tokens a model sees."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from specsim.errors import InputError
from specsim.live.models import LoadedModel
from specsim.live.prompts import Prompt
from specsim.live.session_drive import Job

BYTES_PER_TOKEN = 4
"""About what a tokenizer makes of English, for random weights, which have none."""


def encode_prompts(
    prompts: Sequence[Prompt], target: LoadedModel, chat_template: bool, max_model_len: int | None
) -> list[Job]:
    """Prompts as the model sees them.

    chat_template  whether the tokenizer's chat template wraps them, where it has one
    max_model_len  longest sequence (None: the model's)
    Raises         InputError naming the prompt that has no token, or leaves no room for one
    """
    limit = target.model.config.get_text_config().max_position_embeddings
    limit = min(limit, max_model_len or limit)
    jobs = []
    for prompt in prompts:
        ids = _tokens(prompt.text, target, chat_template)
        if not len(ids):
            raise InputError(f"prompt {prompt.id}: no tokens; the tokenizer of {target.name!r} knows nothing in it")
        if len(ids) >= limit:
            raise InputError(
                f"prompt {prompt.id}: its {len(ids)} tokens leave no room for an output under max_model_len {limit}"
            )
        jobs.append(Job(prompt, np.asarray(ids, dtype=np.int64)))
    return jobs


def _tokens(text: str, target: LoadedModel, chat_template: bool) -> Sequence[int]:
    tokenizer = target.tokenizer
    if tokenizer is None:
        return _stand_in_tokens(text, int(target.model.config.get_text_config().vocab_size))
    if chat_template and tokenizer.chat_template:
        messages = [{"role": "user", "content": text}]
        return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))
    return list(tokenizer.encode(text))


def _stand_in_tokens(text: str, vocabulary: int) -> list[int]:
    """Some token for every few bytes, the same one for the same bytes: what is repeated stays repeated."""
    data = text.encode()
    pieces = [data[start : start + BYTES_PER_TOKEN] for start in range(0, len(data), BYTES_PER_TOKEN)]
    return [zlib.crc32(piece) % vocabulary for piece in pieces]
