"""Which prompts a session serves, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from specsim.errors import InputError
from specsim.live.prompts import Prompt, PromptFile


def interleave(files: Sequence[PromptFile], limit: int | None = None) -> list[Prompt]:
    """Prompts in turn from each file, so that the first ones already are of every kind.

    limit  prompts in all (None: every one)
    """
    rounds = zip_longest(*(file.prompts for file in files))
    return [prompt for row in rounds for prompt in row if prompt is not None][:limit]


def texts_as_prompts(texts: Sequence[str]) -> list[Prompt]:
    """Texts given on a command line.

    Raises  InputError for an empty one
    """
    for text in texts:
        if not text.strip():
            raise InputError("a prompt is empty; it must hold a text")
    return [Prompt(number, "prompt", text) for number, text in enumerate(texts)]
