"""The limits of one engine, simulated or live, named as in vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specsim.errors import InputError

LARGEST_LIMIT = 2**31 - 1
"""No limit of an engine is beyond it; sums of such limits still are numbers of 64 bits."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Limits of one replica.

    max_num_seqs            most running requests
    max_num_batched_tokens  most tokens in a step: anchors, lookahead slots and prompt chunks together
    block_size              tokens a KV block
    num_kv_blocks           KV blocks (None: never the limit)
    max_model_len           longest sequence, prompt included (None: no limit)
    max_tokens              longest output (None: what is left of `max_model_len`)
    prefill                 `charged`: prompts are computed in chunks and paid for; `excluded`: prompts are
                            there at admission, for studies of decoding alone
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    block_size: int = 16
    num_kv_blocks: int | None = None
    max_model_len: int | None = None
    max_tokens: int | None = None
    prefill: Literal["charged", "excluded"] = "charged"

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 1")
            if getattr(self, name) > LARGEST_LIMIT:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at most {LARGEST_LIMIT:,}")
        for name in ("num_kv_blocks", "max_model_len", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1, or absent for no limit")
            if value is not None and value > LARGEST_LIMIT:
                raise InputError(f"{name} is {value}; it must be at most {LARGEST_LIMIT:,}")
        if self.prefill not in ("charged", "excluded"):
            raise InputError(f"prefill is {self.prefill!r}; allowed: charged, excluded")

    def output_limit(self, num_prompt_tokens: int) -> int | None:
        """Longest output after a prompt of this length (None: no limit).

        The lookahead of speculation takes nothing from it: drafts past the limit are cut, not the output.

        num_prompt_tokens   tokens
        returns             tokens, at least 1

        Raises InputError when the prompt leaves no room for a token.
        """
        limits = [] if self.max_tokens is None else [self.max_tokens]
        if self.max_model_len is not None:
            room = self.max_model_len - num_prompt_tokens
            if room < 1:
                raise InputError(
                    f"a prompt of {num_prompt_tokens} tokens leaves no room under max_model_len {self.max_model_len}"
                )
            limits.append(room)
        return min(limits) if limits else None

    def check_lookahead(self, lookahead: int, max_running: int) -> None:
        """Refuse a step whose decodes alone could exceed the token budget.

        lookahead       deepest draft the controller may ask for
        max_running     most requests that can run at once
        """
        needed = min(self.max_num_seqs, max_running) * (1 + lookahead)
        if needed > self.max_num_batched_tokens:
            raise InputError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}, but "
                f"{min(self.max_num_seqs, max_running)} requests of 1 + {lookahead} tokens need {needed}"
            )
