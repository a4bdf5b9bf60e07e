"""A request in the live engine: what it asks, what it got so far, and who is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from specsim.live.detokenizer import Detokenizer
from specsim.live.sampling import SamplingParams
from specsim.serving import Request

Status: TypeAlias = Literal["waiting", "running", "finished", "cancelled", "failed"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """News of one request: what one step committed.

    request_id      whose
    token_ids       new tokens, at least one, or none when it only ended
    text            new text, without what could still become a stop text
    finish_reason   `stop`, `length`, `cancelled` or `failed` with the last chunk, else None
    """

    request_id: int
    token_ids: list[int]
    text: str
    finish_reason: str | None


@dataclass(slots=True, eq=False)
class LiveRequest(Request):
    """One request, from submission to its end; what `Engine.submit` returns.

    prompt          [T] int64 token ids
    params          how its tokens are chosen
    seed            of its randomness
    detokenizer     its text (None: nobody asked for text and there are no stop texts)
    on_chunk        told of new tokens as steps commit
    token_ids       output so far, the stop token included
    error           why it failed
    owner           mark of the engine that serves it
    """

    prompt: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    params: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0
    detokenizer: Detokenizer | None = None
    on_chunk: Callable[[Chunk], None] | None = None
    token_ids: list[int] = field(default_factory=list)
    status: Status = "waiting"
    error: str | None = None
    submitted_before_step: int = 0
    told: int = 0
    owner: object = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """Output text, cut at a stop text; empty when no tokenizer was there."""
        return "" if self.detokenizer is None else self.detokenizer.text

    @property
    def finish_reason(self) -> str | None:
        """`stop`, `length`, `cancelled` or `failed`; None while it runs."""
        if self.status == "finished":
            return "stop" if self.finishes_by_stop else "length"
        return self.status if self.status in ("cancelled", "failed") else None

    def tell(self) -> None:
        """Pass on what is new."""
        if self.on_chunk is None:
            return
        reason = self.finish_reason
        text = "" if self.detokenizer is None else self.detokenizer.news(finished=reason is not None)
        tokens = self.token_ids[self.told :]
        self.told = len(self.token_ids)
        if tokens or text or reason:
            self.on_chunk(Chunk(self.request_id, tokens, text, reason))
