"""How one request's tokens are chosen, and where its output ends."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import numpy as np

from specsim.errors import InputError

MAX_SEED = MAX_TOP_K = 2**63 - 1
MAX_TEMPERATURE = float(np.finfo(np.float32).max)
"""The device keeps temperatures in float32, where what is larger is infinite."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling of one request, named as in vLLM.

    max_tokens    most output tokens, at least 1
    temperature   0: greedy, the most likely token always
    top_k         keep the k most likely tokens (0: all)
    top_p         keep the smallest set of tokens with this much probability (1: all)
    seed          makes the output repeatable (None: drawn from the engine's seed and the request's number)
    stop          texts that end the output; they are cut from it
    ignore_eos    whether the model's stop tokens are ordinary tokens
    """

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):  # as in vLLM, one text need not be in a list; its letters are not meant
            object.__setattr__(self, "stop", (self.stop,))
        for name in ("max_tokens", "top_k", "seed"):
            value = getattr(self, name)
            if (value is not None or name != "seed") and (isinstance(value, bool) or not isinstance(value, Integral)):
                raise InputError(f"{name} is {value!r}; it must be a whole number")
        if self.max_tokens < 1:
            raise InputError(f"max_tokens is {self.max_tokens}; it must be at least 1")
        if not 0 <= self.temperature <= MAX_TEMPERATURE:
            raise InputError(f"temperature is {self.temperature}; it must be finite and at least 0")
        if not 0 <= self.top_k <= MAX_TOP_K:
            raise InputError(f"top_k is {self.top_k}; it must be at least 0, which keeps every token, below 2^63")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}; it must be above 0 and at most 1")
        if self.seed is not None and not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"seed is {self.seed}; it must be from 0 to 2^63 - 1")
        if not all(self.stop):
            raise InputError("a stop text is empty; it must hold at least one character")

    @property
    def filters(self) -> bool:
        """Whether tokens are left out before one is drawn; greedy decoding keeps the best one anyway."""
        return self.temperature > 0 and (self.top_k > 0 or self.top_p < 1)


def request_seed(seed: int, sequence: int) -> int:
    """A request's own seed, where it was given none.

    seed      of the run
    sequence  the request's number, in the order of submission
    """
    return int(np.random.SeedSequence([seed, sequence]).generate_state(1, np.uint64)[0] >> 1)
