"""Which drafts of a step are accepted, and what follows them: judged by the target, or told by a recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from specsim.kernels.verify import Proposal, Sampling, Verdict
from specsim.live.drafters.batch import DraftBatch, Drafted
from specsim.live.ops import Ops


@dataclass(frozen=True, slots=True)
class Pending:
    """A step's drafts under verification.

    batch       whose
    arm         index of the drafter (-1: nothing was drafted)
    tokens      [B, D] int64
    num_verify  [B] int64
    drafted     what was proposed (None: nothing)
    """

    batch: DraftBatch
    arm: int
    tokens: torch.Tensor
    num_verify: torch.Tensor
    drafted: Drafted | None


class Acceptor(Protocol):
    """Judges the drafts of a step.

    label   how outputs of the run are marked (empty: the target judges, and the output is its own)
    """

    label: str

    def judge(self, logits: torch.Tensor, rows: torch.Tensor, pending: Pending) -> Verdict:
        """Accepted drafts and the token that follows, [B] each, on the device."""
        ...


class TargetAcceptor:
    """The target itself: accept, then recover or draw a bonus.

    ops     operations of the device
    """

    label = ""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops

    def judge(self, logits: torch.Tensor, rows: torch.Tensor, pending: Pending) -> Verdict:
        """See `Acceptor.judge`."""
        batch = pending.batch
        if batch.top_k is not None and batch.top_p is not None:
            logits = self._filtered(logits, rows, pending)
        log_prob = None if pending.drafted is None else pending.drafted.log_prob
        proposal = Proposal(pending.tokens, pending.num_verify, log_prob)
        sampling = Sampling(batch.temperature, batch.seeds, batch.positions)
        return self._ops.verify(logits, rows, proposal, sampling)

    def _filtered(self, logits: torch.Tensor, rows: torch.Tensor, pending: Pending) -> Any:
        """Logits with each request's filters on its own rows; what stays is not changed by a bit."""
        from specsim.kernels.top_filter import top_filter

        batch = pending.batch
        assert batch.top_k is not None
        assert batch.top_p is not None
        owner = torch.bucketize(torch.arange(len(logits), device=logits.device), rows, right=True) - 1
        return top_filter(logits, batch.top_k[owner], batch.top_p[owner], batch.temperature[owner])
