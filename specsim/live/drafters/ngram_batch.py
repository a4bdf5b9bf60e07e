"""Prompt lookup for a whole batch on the device: what `ngram.Ngram` proposes for each request, in bits, in one go.

Nothing is read by the host, and every number but the last quotient is an integer, so that no library and no device
can come to another confidence.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from specsim.live.drafters.batch import DraftBatch, Drafted, exact32
from specsim.live.drafters.ngram import LONGEST, LONGEST_MATCH, PRIOR_OFFSET, SHORTEST

MOST_ELEMENTS = 2**24
"""Requests times text length times depth that are compared at once; bounds the memory of a look-up."""


def draft_by_lookup(batch: DraftBatch, depth: int, max_depth: int, most_elements: int = MOST_ELEMENTS) -> Drafted:
    """Copy, for each request, what followed the last time its text ended like this; drafts go to the history.

    depth           columns of the scores
    max_depth       most drafts of a request; further columns stay empty
    most_elements   see MOST_ELEMENTS; a single request is never divided
    """
    device, width = batch.device_lengths.device, min(depth, max_depth)
    num_drafts = torch.zeros_like(batch.device_lengths)
    confidence = torch.zeros((len(batch), depth), dtype=torch.float64, device=device)
    if width < 1 or not len(batch):
        return Drafted(num_drafts, {"drawn_prob": confidence})
    longest = int(batch.lengths.max())
    for rows in _chunks(len(batch), longest * width, most_elements):
        slots, lengths = batch.device_slots[rows], batch.device_lengths[rows]
        tokens, found, scores = look_up(batch.history[slots, :longest], lengths, width)
        count = torch.where(found, torch.clamp(batch.device_room[rows], min=0, max=width), 0)
        kept = torch.arange(width, device=device) < count[:, None]
        places = lengths[:, None] + torch.arange(width, device=device)
        batch.history[slots[:, None], places] = torch.where(kept, tokens, batch.history[slots[:, None], places])
        confidence[rows, :width] = torch.where(kept, exact32(scores), 0.0)
        num_drafts[rows] = count
    return Drafted(num_drafts, {"drawn_prob": confidence})


def look_up(text: torch.Tensor, lengths: torch.Tensor, depth: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What `Ngram.propose` says of each text.

    text        [B, L] int64; what lies behind a request's length is not read
    lengths     [B] int64, tokens of each, in [1, L]
    depth       drafts a request, D, at least 1
    returns     token_ids [B, D] int64, whether anything matched [B] bool, and confidence [B, D] float64; rows where
                nothing matched hold anything
    """
    starts = _occurrences(text, lengths)
    place = torch.arange(text.shape[1], device=text.device)
    start = torch.where(starts, place, 0).amax(dim=1)
    found = starts.any(dim=1)
    steps = torch.arange(depth, device=text.device)
    # Past the end of the text the copy goes on with what it has just copied, as a loop would.
    token_ids = text.gather(1, start[:, None] + steps % (lengths - start)[:, None])
    others = starts & (place != start[:, None])
    hits, trials = _observations(text, lengths, others, token_ids)
    matched = (_match_length(text, lengths, start)[:, None] + steps).double()
    prior = matched / (matched + PRIOR_OFFSET)
    return token_ids, found, (hits.double() + prior) / (trials.double() + 1.0)


def _occurrences(text: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """[B, L] bool, places right after each earlier occurrence of the longest final n-gram that occurred before."""
    place = torch.arange(text.shape[1], device=text.device)
    agrees = (place < lengths[:, None]) & (place > 0)  # of no tokens yet
    chosen = torch.zeros_like(agrees)
    for length in range(1, LONGEST + 1):
        last = text.gather(1, torch.clamp(lengths - length, min=0)[:, None])
        agrees = agrees & (place >= length) & (text.roll(length, dims=1) == last)
        if length >= SHORTEST:
            chosen = torch.where(agrees.any(dim=1)[:, None], agrees, chosen)
    return chosen


def _observations(
    text: torch.Tensor, lengths: torch.Tensor, others: torch.Tensor, token_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Continuations that agreed up to each draft, and those that agreed before it and go on: [B, D] int64 each."""
    depth = token_ids.shape[1]
    index = torch.arange(text.shape[1], device=text.device)[:, None] + torch.arange(depth, device=text.device)
    known = others[:, :, None] & (index < lengths[:, None, None])  # [B, L, D]
    ahead = torch.nn.functional.pad(text, (0, depth - 1)).unfold(1, depth, 1)
    agreed = (known & (ahead == token_ids[:, None, :])).to(torch.int8).cummin(dim=2).values.bool()
    before = torch.nn.functional.pad(agreed[:, :, :-1], (1, 0), value=True)
    return agreed.sum(dim=1), (before & known).sum(dim=1)


def _match_length(text: torch.Tensor, lengths: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """[B] int64, tokens before `start` that equal the text's last ones, up to LONGEST_MATCH."""
    back = torch.arange(1, LONGEST_MATCH + 1, device=text.device)
    here = text.gather(1, torch.clamp(start[:, None] - back, min=0))
    there = text.gather(1, torch.clamp(lengths[:, None] - back, min=0))
    same = (here == there) & (back <= start[:, None])
    return same.to(torch.int64).cummin(dim=1).values.sum(dim=1)


def _chunks(batch: int, each: int, most: int) -> Iterator[slice]:
    size = max(1, most // max(each, 1))
    return (slice(first, first + size) for first in range(0, batch, size))
