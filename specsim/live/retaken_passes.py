"""The passes of a finished run, taken again over given texts.

What a pass says of a position depends on the text before it and, in the last bits, on the pass's shape. Taken again,
the passes of two runs tell apart what their shapes and what their texts make of a law.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specsim.live.commit import Emission
from specsim.live.engine import Engine, LiveSetup
from specsim.live.requests import LiveRequest
from specsim.live.runner import Rows
from specsim.live.step import Step

Tokens = list[list[int]]
"""Output tokens of each request."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What a step fed: R runs of tokens, those of decoding requests first.

    requests     [R] int64, numbers of the requests
    starts       [R] int64, first position fed
    counts       [R] int64, tokens fed
    num_decodes  how many of the runs are decodes; the others are pieces of prompts
    shape        tokens the pass ran over: a bucket, or where it was eager the next power of two
    """

    requests: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    num_decodes: int
    shape: int

    def targets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[K] int64 each: rows of logits a step keeps, whose they are, and the position each gives a law of."""
        counts = np.where(np.arange(len(self.counts)) < self.num_decodes, self.counts, 1)
        requests = np.repeat(self.requests, counts)
        within = np.arange(len(requests)) - np.repeat(np.cumsum(counts) - counts, counts)
        last = np.repeat(self.starts + self.counts - counts, counts)
        return np.arange(len(requests)), requests, last + within + 1


class PassRecorder:
    """Keeps what every step of an engine fed; every step must be settled before the next.

    engine  whom it watches from now on
    """

    def __init__(self, engine: Engine) -> None:
        self.passes: list[Pass] = []
        self._slots, self._captured = engine.scheduler.slots, bool(engine.setup.buckets)
        engine.observers.append(self)

    def on_step(self, row: np.void, step: Step, emission: Emission | None) -> None:
        """See `Observer.on_step`."""
        fed = []
        if emission is not None:
            for place, request in enumerate(step.members.requests):
                before = request.num_prompt_tokens + len(request.token_ids) - int(emission.num_emitted[place])
                fed.append((request.sequence, before - 1, 1 + int(step.verified[place])))
        for slot, size in step.chunks:
            fed.append((self._slots.request(slot).sequence, int(self._slots.computed[slot]) - size, size))
        requests, starts, counts = np.array(fed, np.int64).T
        paid = int(row["num_tokens_paid"])
        shape = paid if self._captured else 1 << (paid - 1).bit_length()
        self.passes.append(Pass(requests, starts, counts, len(step.slots), shape))

    def on_request(self, request: LiveRequest) -> None:
        """See `Observer.on_request`."""


@dataclass(frozen=True, slots=True)
class Laws:
    """What a pass says of output tokens.

    requests   [K] int64 on the device
    positions  [K] int64, output positions
    logits     [K, V]
    shape      of the pass
    """

    requests: torch.Tensor
    positions: torch.Tensor
    logits: torch.Tensor
    shape: int


def laws_of(setup: LiveSetup, passes: Sequence[Pass], prompts: Sequence[np.ndarray], outputs: Tokens) -> Iterator[Laws]:
    """Take passes again over given texts; the setup must be idle, and is again once all of them are taken.

    prompts, outputs  the texts; a request's number is its place
    """
    history, pool = setup.state.history, setup.pool
    lengths = np.array([len(prompt) for prompt in prompts])
    for slot, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        text = np.concatenate([prompt, np.array(output, np.int64)])
        history[slot] = 0
        history[slot, : len(text)] = torch.from_numpy(text)
        if not pool.reserve(slot, history.shape[1]):
            raise RuntimeError("too few KV blocks to take the passes of all requests again")
    ends = np.array([len(output) for output in outputs])
    try:
        for each in passes:
            logits = _run(setup, each)
            rows, requests, targets = each.targets()
            positions = targets - lengths[requests]
            there = (positions >= 0) & (positions < ends[requests])
            told = setup.state.on_device(np.stack([rows[there], requests[there], positions[there]]))
            yield Laws(told[1], told[2], logits[told[0]], each.shape)
    finally:
        for slot in range(len(prompts)):
            pool.release(slot)


def _run(setup: LiveSetup, each: Pass) -> torch.Tensor:
    """Logits as the engine's own step asks for them."""
    fed = setup.state.on_device(np.stack([each.requests, each.starts, each.counts]))
    decodes, sizes = int(each.counts[: each.num_decodes].sum()), each.counts[each.num_decodes :]
    keep = None
    if len(sizes):
        keep = setup.state.on_device(np.concatenate([np.arange(decodes), decodes + np.cumsum(sizes) - 1]))
    return setup.runner.run(Rows.of(fed, int(each.counts.sum())), keep).logits
