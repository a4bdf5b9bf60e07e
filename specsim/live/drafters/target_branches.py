"""What the target would make of drawn drafts at many positions of a text, each behind its own drafts.

A drawn draft is judged by the target's law given the drafts before it, which the text's own tokens need not be. So the
anchor and drafts of each position are a branch of a tree over the text, and one pass gives the laws of many branches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from specsim.kernels.verify import Proposal, Sampling
from specsim.live.drafters.batch import DraftBatch, Drafted
from specsim.live.models import LoadedModel, cache_keyword
from specsim.live.ops import choose_ops


@dataclass(frozen=True, slots=True)
class Chances:
    """What the target makes of drawn drafts.

    accept_prob   [P, D] float64, min(1, target / draft) of each draft given those before it, 0 where none is judged
    num_accepted  [P] int64, drafts that pass the engine's tests
    """

    accept_prob: np.ndarray
    num_accepted: np.ndarray


class TargetBranches:
    """The target over a text whose keys and values it keeps.

    target  the model
    text    [N] int64
    """

    def __init__(self, target: LoadedModel, text: Tensor) -> None:
        self._model, self._text = target.model, text
        self._limit = target.model.config.get_text_config().max_position_embeddings - 1
        self._cache = {cache_keyword(target.model): DynamicCache(config=target.model.config)}
        self._verify = choose_ops(target.device).verify
        target.model.get_decoder()(text[None], use_cache=True, **self._cache)

    def judge(self, batch: DraftBatch, drafted: Drafted, anchors: Tensor, judged: np.ndarray) -> Chances:
        """Test drafts as the engine does.

        batch    P positions, whose drafts are in its history from 0 on
        drafted  the laws they were drawn from
        anchors  [P] int64, index in the text of the token before the drafts
        judged   [P] int64, leading drafts that are tested
        """
        count, depth = batch.history.shape
        if drafted.log_prob is None:
            return Chances(np.zeros((count, depth)), np.zeros(count, np.int64))
        logits = self._logits(batch.history, anchors)
        tested = torch.from_numpy(judged).to(anchors.device)
        rows = torch.arange(count, device=anchors.device) * (depth + 1)
        proposal = Proposal(batch.history, tested, drafted.log_prob)
        verdict = self._verify(logits, rows, proposal, Sampling(batch.temperature, batch.seeds, batch.positions))
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32)).unflatten(0, (count, depth + 1))[:, :depth]
        law = (wide / batch.temperature[:, None, None].to(wide.dtype)).log_softmax(-1)
        drawn = batch.history[:, :, None]
        log_ratio = law.gather(2, drawn)[..., 0] - drafted.log_prob.gather(2, drawn)[..., 0]
        there = torch.arange(depth, device=anchors.device) < tested[:, None]
        accept_prob = torch.where(there, log_ratio.clamp(max=0.0).exp().double(), 0.0)
        return Chances(accept_prob.cpu().numpy(), verdict.num_accepted.cpu().numpy())

    def _logits(self, drafts: Tensor, anchors: Tensor) -> Tensor:
        """[P * (D + 1), V] logits after each anchor and each of its drafts [P, D]."""
        count, width = len(drafts), drafts.shape[1] + 1
        device = drafts.device
        tokens = torch.cat([self._text[anchors][:, None], drafts], dim=1)
        positions = anchors[:, None] + torch.arange(width, device=device)
        sees_text = torch.arange(len(self._text), device=device) < anchors[:, None]
        branch = torch.arange(count * width, device=device) // width
        place = torch.arange(count * width, device=device) % width
        sees_own = (branch[:, None] == branch) & (place[:, None] >= place)
        sees = torch.cat([sees_text.repeat_interleave(width, 0), sees_own], dim=1)
        dtype = self._model.dtype
        mask = torch.zeros(sees.shape, dtype=dtype, device=device).masked_fill(~sees, torch.finfo(dtype).min)
        logits: Tensor = self._model(
            tokens.reshape(1, -1),
            attention_mask=mask[None, None],
            position_ids=positions.clamp(max=self._limit).reshape(1, -1),
            use_cache=True,
            **self._cache,
        ).logits[0]
        next(iter(self._cache.values())).crop(-count * width)  # negative: tokens to drop
        return logits
