"""One step of the live engine while it is under way."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from specsim.core import Draft, Order, Score, StepContext
from specsim.live.drafters.batch import DraftBatch, Drafted
from specsim.live.members import NOBODY, Members
from specsim.live.runner import PassOutput


@dataclass
class Step:
    """What a step has found out so far, in the order of its phases.

    started_at      instant of its start, seconds
    slots           [B] int64, the requests that decode
    chunks          (slot, tokens) of the prompts that are computed beside them
    num_waiting     requests in the queue
    members         the requests that decode
    context         what the controller was told (None: nobody decodes)
    order           what it ordered
    batch           the decoding requests, on both sides (None: nobody decodes)
    drafted         what was proposed (None: a plain step)
    draft           the same as the plan saw it, on the device
    num_verify      [B] int64, on the device
    fed             [3, R] int64, slots, starts and counts of the pass, on the device
    out             what the pass brought (None: it is not launched yet)
    missed          tokens drafters had to compute before they could draft, all requests together
    switch_price    what the cost table says of that, seconds
    device_tokens   [B, D] int64, drafted tokens on the device
    budget          drafts verified, all requests together
    paid            tokens the pass ran over
    seen            the draft on the host, once the step is over
    verified        [B] int64 numpy, drafts verified
    blocks          [B, D + 1] int64 numpy, accepted drafts and the token after them
    scores          each score, [B, D] float64 numpy
    tokens          [B, D] int64 numpy, drafted tokens
    offered         what was proposed before the policy cut it short (None: it was not)
    offered_tokens  [B, D] int64, tokens of `offered`, on the device
    """

    started_at: float
    slots: np.ndarray
    chunks: list[tuple[int, int]]
    num_waiting: int
    members: Members = NOBODY
    context: StepContext | None = None
    order: Order = field(default_factory=lambda: Order(0, 0))
    batch: DraftBatch | None = None
    drafted: Drafted | None = None
    draft: Draft | None = None
    num_verify: torch.Tensor | None = None
    fed: torch.Tensor | None = None
    out: PassOutput | None = None
    missed: int = 0
    switch_price: float = 0.0
    device_tokens: torch.Tensor | None = None
    budget: int = 0
    paid: int = 0
    seen: Draft | None = None
    verified: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    blocks: np.ndarray = field(default_factory=lambda: np.zeros((0, 1), np.int64))
    scores: dict[Score, np.ndarray] = field(default_factory=dict)
    tokens: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    offered: Drafted | None = None
    offered_tokens: torch.Tensor | None = None
