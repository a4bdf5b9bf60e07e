"""Drafting with a language model, one token a pass: what early exits and smaller models share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch.nn.functional import pad

from specsim.core import DraftLaw, Score
from specsim.kernels.recover import draw
from specsim.kernels.top_filter import top_filter
from specsim.kernels.uniform import DRAFT, uniform
from specsim.live.drafters.batch import DraftBatch, Drafted, Stop, exact32
from specsim.live.runner import ModelRunner, Rows

STEPWISE_SCORES: tuple[Score, ...] = ("drawn_prob", "max_prob", "margin", "shifted_prob")

SCORE_SOURCES: dict[DraftLaw, str] = {
    "point_mass": "softmax probability of the drafted (most likely) token, temperature 1",
    "sampled": "probability of the drawn token under the law it was drawn from: the request's temperature and filters",
}

Feed: TypeAlias = Callable[[int], torch.Tensor]
"""Feeds each request's latest token, the anchor at step 0, then its drafts; gives the logits [B, V] that follow. Rows
of requests whose room is used up may hold anything."""


def draft_stepwise(feed: Feed, batch: DraftBatch, depth: int, law: DraftLaw, stop: Stop | None = None) -> Drafted:
    """Draft token after token, each from the tokens before it.

    feed    one pass of the drafting model
    law     `point_mass`: the most likely token; `sampled`: drawn at each request's temperature, within its filters
    stop    see `LiveDrafter.draft`

    Where no request has room for more, no further pass is made.
    """
    columns: list[_Column] = []
    for step in range(min(depth, int(batch.room.max(initial=0)))):
        columns.append(_choose(feed(step), batch, step, law))
        batch.history[batch.device_slots, batch.device_lengths + step] = columns[-1].token
        if stop is not None and step + 1 < depth and stop(_join(columns, batch, step + 1)):
            return _join(columns, batch, step + 1)
    return _join(columns, batch, depth)


def feed_latest(runner: ModelRunner, batch: DraftBatch, step: int) -> torch.Tensor:
    """One token of each request that has room for the draft it leads to; see `Feed`."""
    device = batch.device_lengths.device
    active = np.flatnonzero(batch.room > step)
    if len(active) == len(batch):
        each = torch.arange(len(batch), device=device)
        ones = torch.ones_like(batch.device_lengths)
        return runner.run(Rows(batch.device_slots, batch.device_lengths - 1 + step, ones, len(batch)), each).logits
    index = torch.from_numpy(active).to(device)
    slots, starts = batch.device_slots[index], batch.device_lengths[index] - 1 + step
    each = torch.arange(len(active), device=device)
    logits = runner.run(Rows(slots, starts, torch.ones_like(starts), len(active)), each).logits
    return spread(logits, index, len(batch))


def spread(logits: torch.Tensor, index: torch.Tensor, batch: int) -> torch.Tensor:
    """[batch, V]: the rows of some requests, zeros for the others."""
    return logits.new_zeros((batch, logits.shape[1])).index_copy_(0, index, logits)


@dataclass(frozen=True, slots=True)
class _Column:
    """One drafted token of each request, and what is said of it.

    token                           [B] int64
    drawn_prob, max_prob, margin    [B] float64
    log_prob                        [B, V] float32, the law it was drawn from (None: it is certain)
    """

    token: torch.Tensor
    drawn_prob: torch.Tensor
    max_prob: torch.Tensor
    margin: torch.Tensor
    log_prob: torch.Tensor | None


def _choose(logits: torch.Tensor, batch: DraftBatch, step: int, law: DraftLaw) -> _Column:
    """Take each request's next draft from its logits [B, V]."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    top = wide.topk(2, dim=-1).values
    margin = (top[:, 0] - top[:, 1]).double()
    if law == "point_mass":
        prob = (top[:, 0] - wide.logsumexp(-1)).exp().double().clamp(max=1.0)
        # argmax, not topk's first: on a tie the target's own greedy choice is the argmax.
        return _Column(logits.argmax(-1), prob, prob, margin, None)
    log_prob = _law(wide, batch)
    # An output position that is drafted again, since a draft before it was rejected, is drawn anew: a policy may have
    # seen scores that depend on the draft which came to nothing, and must know nothing of the one that it cuts now.
    chance = uniform(batch.seeds, batch.positions + (step << 32), DRAFT).double()
    token = draw(log_prob.exp(), chance)
    drawn = log_prob.gather(1, token[:, None])[:, 0].exp().double().clamp(max=1.0)
    return _Column(token, drawn, log_prob.max(-1).values.exp().double().clamp(max=1.0), margin, log_prob)


def _law(wide: torch.Tensor, batch: DraftBatch) -> torch.Tensor:
    """[B, V] float32, log-probabilities each request's draft is drawn from: certain where it decodes greedily."""
    greedy = batch.temperature <= 0
    largest = wide.max(
        -1, keepdim=True
    ).values  # taken off, or a low temperature would make more than one of them infinite
    tempered = (wide - largest) / torch.where(greedy, 1.0, batch.temperature).to(wide.dtype)[:, None]
    if batch.top_k is not None and batch.top_p is not None:
        tempered = top_filter(tempered, batch.top_k, batch.top_p)
    sure = torch.full_like(wide, float("-inf")).scatter_(1, wide.argmax(-1)[:, None], 0.0)
    return torch.where(greedy[:, None], sure, tempered.log_softmax(-1)).float()


def _join(columns: list[_Column], batch: DraftBatch, depth: int) -> Drafted:
    """All columns together; those that no request had room for are empty."""
    num_drafts = torch.clamp(batch.device_room, min=0, max=len(columns))
    there = torch.arange(depth, device=num_drafts.device) < num_drafts[:, None]
    if not columns:
        nothing = there.double()
        return Drafted(num_drafts, dict.fromkeys(STEPWISE_SCORES, nothing))
    missing = depth - len(columns)

    def score(values: list[torch.Tensor]) -> torch.Tensor:
        return torch.where(there, pad(exact32(torch.stack(values, dim=1)), (0, missing)), 0.0)

    drawn = score([column.drawn_prob for column in columns])
    shifted = torch.cat([torch.ones_like(drawn[:, :1]), drawn[:, :-1]], dim=1)
    scores: dict[Score, torch.Tensor] = {
        "drawn_prob": drawn,
        "max_prob": score([column.max_prob for column in columns]),
        "margin": score([column.margin for column in columns]),
        "shifted_prob": torch.where(there, shifted, 0.0),
    }
    laws = [column.log_prob for column in columns if column.log_prob is not None]
    log_prob = pad(torch.stack(laws, dim=1), (0, 0, 0, missing), value=float("-inf")) if laws else None
    return Drafted(num_drafts, scores, log_prob)
