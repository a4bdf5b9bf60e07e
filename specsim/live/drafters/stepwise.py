"""Drafting with a language model, one token a pass: what early exits and smaller models share."""

from __future__ import annotations

import torch

from specsim.core import DraftLaw, Score
from specsim.kernels.uniform import DRAFT, uniform
from specsim.live.drafters.batch import DraftBatch, Drafted, Stop, exact32
from specsim.live.runner import ModelRunner, Rows


def draft_stepwise(
    runner: ModelRunner,
    batch: DraftBatch,
    depth: int,
    law: DraftLaw,
    stop: Stop | None = None,
    logits: torch.Tensor | None = None,
) -> Drafted:
    """Draft token after token, each from the tokens before it.

    runner  the drafting model
    law     `point_mass`: the most likely token; `sampled`: drawn at each request's temperature
    stop    see `LiveDrafter.draft`
    logits  [B, V] those after the anchor, where a pass has computed them already (None: the anchor is fed first)
    """
    columns: list[_Column] = []
    ones = torch.ones_like(batch.device_lengths)
    lead = torch.arange(len(batch), device=batch.device_lengths.device)
    for step in range(depth):
        if logits is None:
            # Past a request's room nothing is read from its drafts; its rows only must stay inside the cache.
            fed = torch.minimum(batch.device_lengths - 1 + step, batch.device_lengths - 1 + batch.device_room)
            rows = Rows(batch.device_slots, torch.clamp(fed, min=0), ones, len(batch))
            logits = runner.run(rows, lead).logits
        columns.append(_choose(logits, batch, step, law))
        batch.history[batch.device_slots, batch.device_lengths + step] = columns[-1].token
        logits = None
        if stop is not None and step + 1 < depth and stop(_join(columns, batch, law)):
            break
    return _join(columns, batch, law)


class _Column:
    """One drafted token of each request, and what is said of it."""

    def __init__(
        self,
        token: torch.Tensor,
        drawn_prob: torch.Tensor,
        max_prob: torch.Tensor,
        margin: torch.Tensor,
        log_prob: torch.Tensor | None,
    ) -> None:
        self.token = token  # [B] int64
        self.drawn_prob = drawn_prob  # [B] float64
        self.max_prob = max_prob
        self.margin = margin
        self.log_prob = log_prob  # [B, V] float32


def _choose(logits: torch.Tensor, batch: DraftBatch, step: int, law: DraftLaw) -> _Column:
    """Take each request's next draft from its logits [B, V]."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    top = wide.topk(2, dim=-1).values
    margin = (top[:, 0] - top[:, 1]).double()
    if law == "point_mass":
        prob = (top[:, 0] - wide.logsumexp(-1)).exp().double().clamp(max=1.0)
        # argmax, not topk's first: on a tie the target's own greedy choice is the argmax.
        return _Column(logits.argmax(-1), prob, prob, margin, None)
    greedy = batch.temperature <= 0
    tempered = wide / torch.where(greedy, 1.0, batch.temperature).to(wide.dtype)[:, None]
    if batch.top_k is not None and batch.top_p is not None:
        from specsim.kernels.top_filter import top_filter

        tempered = top_filter(tempered, batch.top_k, batch.top_p)
    best = wide.argmax(-1)
    sure = torch.full_like(wide, float("-inf")).scatter_(1, best[:, None], 0.0)
    log_prob = torch.where(greedy[:, None], sure, tempered.log_softmax(-1)).float()
    weights = log_prob.exp().cumsum(-1)
    chance = uniform(batch.seeds, batch.positions + step, DRAFT).to(weights.dtype)
    token = _inverse(log_prob, weights, chance)
    drawn = log_prob.gather(1, token[:, None])[:, 0].exp().double().clamp(max=1.0)
    return _Column(token, drawn, log_prob.max(-1).values.exp().double().clamp(max=1.0), margin, log_prob)


def _inverse(log_prob: torch.Tensor, sums: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    """The first token whose cumulated probability exceeds the share; never one of probability 0."""
    possible = log_prob > float("-inf")
    exceeds = possible & (sums > (chance * sums[:, -1])[:, None])
    last = log_prob.shape[1] - 1 - possible.flip(1).to(torch.int64).argmax(1)
    return torch.where(exceeds.any(1), exceeds.to(torch.int64).argmax(1), last)


def _join(columns: list[_Column], batch: DraftBatch, law: DraftLaw) -> Drafted:
    num_drafts = torch.clamp(batch.device_room, min=0, max=len(columns))
    there = torch.arange(len(columns), device=num_drafts.device) < num_drafts[:, None]

    def score(values: list[torch.Tensor]) -> torch.Tensor:
        return torch.where(there, exact32(torch.stack(values, dim=1)), 0.0)

    drawn = score([column.drawn_prob for column in columns])
    scores: dict[Score, torch.Tensor] = {
        "drawn_prob": drawn,
        "max_prob": score([column.max_prob for column in columns]),
        "margin": score([column.margin for column in columns]),
        "shifted_prob": torch.where(there, torch.cat([torch.ones_like(drawn[:, :1]), drawn[:, :-1]], dim=1), 0.0),
    }
    log_prob = None
    if law == "sampled":
        log_prob = torch.stack([column.log_prob for column in columns if column.log_prob is not None], dim=1)
    return Drafted(num_drafts, scores, log_prob)
